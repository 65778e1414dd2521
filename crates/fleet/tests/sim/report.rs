//! Calls that a client reports itself: asked for at one node, ended at any, and tried again with the
//! same name whenever nobody answers.

use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Outcome, Ticket, Tokens, Usage};
use deadstop_fleet::Owner;
use tokio::time::sleep;

use crate::books::{Entry, Fate};
use crate::world::{World, cost};

/// How often somebody tries who does not give up: longer than anybody is ever cut off.
const TRIES: usize = 200;

/// What a letter says: the call's ticket, or that it has ended.
fn read(letter: &[u8]) -> Option<Ticket> {
    postcard::from_bytes::<Option<Ticket>>(letter).ok().flatten()
}

fn write(ticket: Option<&Ticket>) -> Vec<u8> {
    postcard::to_extend(&ticket, Vec::new()).unwrap_or_default()
}

impl World {
    /// One call that is reported. Whoever reports it does not give up.
    pub(crate) async fn report(self: Arc<World>, chain: Vec<String>, id: String) {
        let dice = &self.hub.dice;
        let call = Arc::new(self.some_call());
        let mut admitted = None;
        let standing = self.books.standing(&chain);
        let ghost = self.books.asks(&chain, call.tool().is_some());
        for _ in 0..TRIES {
            let (_, node) = dice.pick(&self.alive()).clone();
            let cells = self.cells(&node, &chain);
            let letter = cells.last().map(|cell| cell.letter_key(&id));
            let asked = Arc::clone(&call);
            let asking = node.fleet.run(cells, &self.policies, letter, move |desk| {
                if let Some(known) = desk.letter.as_deref() {
                    return read(known);
                }
                let ticket = desk.admit(&asked, &Owner::Anybody).ticket;
                if ticket.is_some() {
                    *desk.letter = Some(write(ticket.as_ref()));
                }
                ticket
            });
            // A client does not wait for a node that is dead.
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
            unasked: false,
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
            let letter = cells.last().map(|cell| cell.letter_key(&id));
            let (call, outcome) = (Arc::clone(&call), outcome.clone());
            let (lost, hub) = (ticket.clone(), Arc::clone(&self.hub));
            let ending = node.fleet.run(cells, &self.policies, letter, move |desk| {
                let known = desk.letter.clone();
                let ticket = match known.as_deref() {
                    Some(letter) => read(letter),
                    // Only a store that lost its memory does not know it.
                    None => (!hub.restarts.lock().is_empty()).then(|| lost.clone()),
                };
                let Some(ticket) = ticket else { return known.is_some() };
                desk.settle(&call, ticket, &Owner::Anybody, &outcome);
                *desk.letter = Some(write(None));
                true
            });
            match tokio::time::timeout(Duration::from_secs(15), ending).await {
                Ok(Ok(true)) => {
                    self.books.change(entry, |entry| entry.fate = Fate::Settled);
                    return;
                }
                Ok(Ok(false)) => {
                    self.books.fault(format!("(c) {chain:?}: nobody knows of the call {id}"));
                    return;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(Duration::from_millis(dice.range(1, 800))).await;
        }
    }
}
