//! Calls that a client reports itself: admitted by one node, settled by any, and retried under the
//! same id while no node answers.

use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Outcome, Ticket, Tokens, Usage};
use deadstop_fleet::Owner;
use tokio::time::sleep;

use crate::books::{Entry, Fate};
use crate::world::{World, cost};

/// Attempts of a client: more than the longest partition lasts.
const TRIES: usize = 200;

/// What an entry contains: the call's ticket, or that the call has ended.
fn read(entry: &[u8]) -> Option<Ticket> {
    postcard::from_bytes::<Option<Ticket>>(entry).ok().flatten()
}

fn write(ticket: Option<&Ticket>) -> Vec<u8> {
    postcard::to_extend(&ticket, Vec::new()).unwrap_or_default()
}

impl World {
    /// One reported call. Its client retries until it gets an answer.
    pub(crate) async fn report(self: Arc<World>, chain: Vec<String>, id: String) {
        let dice = &self.hub.dice;
        let call = Arc::new(self.some_call());
        let mut admitted = None;
        let standing = self.books.standing(&chain);
        let ghost = self.books.asks(&chain, call.tool().is_some());
        for _ in 0..TRIES {
            let (_, node) = dice.pick(&self.alive()).clone();
            let cells = self.cells(&node, &chain);
            let key = cells.last().map(|cell| cell.entry_key(&id));
            let asked = Arc::clone(&call);
            let asking = node.fleet.run(cells, &self.policies, key, move |transaction| {
                if let Some(known) = transaction.entry.as_deref() {
                    return read(known);
                }
                let ticket = transaction.admit(&asked, &Owner::Any).ticket;
                if ticket.is_some() {
                    *transaction.entry = Some(write(ticket.as_ref()));
                }
                ticket
            });
            // A client does not wait for a dead node.
            if let Ok(Ok(ticket)) = tokio::time::timeout(Duration::from_secs(15), asking).await {
                admitted = Some(ticket);
                break;
            }
            sleep(Duration::from_millis(dice.range(1, 800))).await;
        }
        let Some(Some(ticket)) = admitted else { return };
        self.books.answered(ghost);
        for kill in &standing {
            if self.books.standing(&chain).contains(kill) {
                self.books.fault(format!("(a) {chain:?}: reported after the kill of {}", kill.0));
            }
        }
        let input = call.model().map_or(Tokens(0), |call| call.input);
        let output = match call.tool() {
            Some(_) => Tokens(0),
            None => Tokens(dice.range(0, ticket.reserved().output.0 + 1)),
        };
        let entry = self.books.open(Entry {
            chain: chain.clone(),
            node: usize::MAX,
            tool: call.tool().is_some(),
            offline: false,
            reserved: ticket.held(),
            granted: ticket.held(),
            input,
            output,
            cost: cost(&call, input, output),
            fate: Fate::Runs,
            ends: false,
        });
        crate::check::granted(&self, &chain);
        sleep(Duration::from_millis(dice.range(1, 2000))).await;
        self.books.change(entry, |entry| entry.ends = true);
        let usage = Usage { input, output, ..Usage::default() };
        let outcome = Outcome { usage, ..Outcome::default() };
        for _ in 0..TRIES {
            let (_, node) = dice.pick(&self.alive()).clone();
            let cells = self.cells(&node, &chain);
            let key = cells.last().map(|cell| cell.entry_key(&id));
            let (call, outcome) = (Arc::clone(&call), outcome.clone());
            let (lost, hub) = (ticket.clone(), Arc::clone(&self.hub));
            let ending = node.fleet.run(cells, &self.policies, key, move |transaction| {
                let known = transaction.entry.clone();
                let ticket = match known.as_deref() {
                    Some(entry) => read(entry),
                    // Only a Redis that lost its data does not know the call.
                    None => (!hub.restarts.lock().is_empty()).then(|| lost.clone()),
                };
                let Some(ticket) = ticket else { return known.is_some() };
                transaction.settle(&call, ticket, &Owner::Any, &outcome);
                *transaction.entry = Some(write(None));
                true
            });
            match tokio::time::timeout(Duration::from_secs(15), ending).await {
                Ok(Ok(true)) => {
                    self.books.change(entry, |entry| entry.fate = Fate::Settled);
                    return;
                }
                Ok(Ok(false)) => {
                    self.books.fault(format!("(c) {chain:?}: no record of the call {id}"));
                    return;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(Duration::from_millis(dice.range(1, 800))).await;
        }
    }
}
