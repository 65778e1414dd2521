//! The same questions where there are many nodes: a call that was let pass by one may be reported to
//! any other, so what is known of it goes with its session.

use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Call, Progress, Tokens, Trip, Verdict};
use deadstop_fleet::Owner;
use deadstop_redact::excerpt::Excerpt;

use super::{Problem, Receipt, Reply, Report, dead, decided, no_call, waits};
use crate::api::App;
use crate::api::problem::Code;
use crate::warden::{Chain, Node, Numbered, Refused, Reported, Said, Told, Warden, Wish, Wished};

/// How long whoever reports waits for the state that nodes share.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a call was let pass by this node alone, while nobody could be asked.
pub(super) fn reported_here(chain: &Chain, id: &str) -> bool {
    chain.innermost().governed.lock().get(id).is_some()
}

fn away(why: &str) -> Problem {
    let text = format!("the state that nodes share is away ({why}), and the policy says to refuse");
    Problem::new(Code::StoreFailed, text)
}

/// Asks the engine, unless it was asked before.
pub(super) async fn ask(
    app: &App,
    node: &Arc<Node>,
    chain: &Chain,
    id: String,
    call: Call,
    request: Excerpt,
) -> Result<Reply, Problem> {
    let warden = &app.warden;
    if let Some(reported) = chain.innermost().governed.lock().get(&id) {
        return Ok(reported.admitted.clone());
    }
    let wish = Wish { reported_as: Some(id.clone()), ..Wish::default() };
    let now = warden.time();
    let before = warden.approvals.asked_as(chain, &id, &call, now);
    let wished = match before.as_ref().map(|approval| (approval, approval.word())) {
        Some((approval, None)) => return Ok(waits(&id, approval)),
        Some((approval, Some(_))) if approval.is_approved(now) => {
            let wish = Wish { approval: Some(Arc::clone(approval)), ..wish.clone() };
            warden.wish(node, chain, &call, &request, wish).await
        }
        Some((approval, Some(word))) if approval.counts() => {
            Wished::Decided(Err(warden.refusal_of(approval, &word)))
        }
        _ => warden.wish(node, chain, &call, &request, wish.clone()).await,
    };
    let allowed = |trips: &[Trip]| {
        let verdict = trips.first().map_or(Verdict::Allow, |trip| trip.verdict);
        decided(&id, verdict, trips, None)
    };
    match wished {
        Wished::Known(letter) => {
            let told = Told::read(&letter).ok_or_else(no_call)?;
            Ok(dead(chain).unwrap_or_else(|| allowed(&told.trips())))
        }
        Wished::Decided(Ok((running, trips))) => {
            let admitted = allowed(&trips);
            if running.is_unasked() {
                let (reply, response) = (admitted.clone(), Excerpt::default());
                let running = Some(running);
                let call = Reported { call, running, request, response, admitted, receipt: None };
                chain.innermost().governed.lock().insert(id, call);
                return Ok(reply);
            }
            Ok(admitted)
        }
        Wished::Decided(Err(refused)) if refused.asks() => {
            match warden.ask(chain, &call, &request, refused.trips, wish) {
                Ok(question) => {
                    let approval = Arc::clone(&question.approval);
                    question.detach();
                    // Whoever is told that it waits may look for it at any node.
                    warden.announce_asked(&approval).await;
                    Ok(waits(&id, &approval))
                }
                Err(Refused { trips, incident, .. }) => {
                    Ok(decided(&id, Verdict::Block, &trips, incident))
                }
            }
        }
        Wished::Decided(Err(Refused { away: Some(why), .. })) => Err(away(&why)),
        Wished::Decided(Err(Refused { trips, incident, .. })) => {
            let verdict = trips.first().map_or(Verdict::Block, |trip| trip.verdict);
            Ok(decided(&id, verdict, &trips, incident))
        }
        Wished::Stale => Err(no_call()),
    }
}

/// May this call go on? If the caller will wait, that is answered once more when it is to be stopped,
/// or when the time is up.
pub(super) async fn progress(
    app: &App,
    node: &Arc<Node>,
    chain: &Chain,
    report: Report,
) -> Result<Reply, Problem> {
    let reply = progress_now(app, node, chain, &report).await?;
    if report.wait_ms == 0 || reply.status != 200 {
        return Ok(reply);
    }
    let report = Report { text: String::new(), ..report };
    super::stopped(app, chain, &report, || true).await;
    progress_now(app, node, chain, &report).await
}

async fn progress_now(
    app: &App,
    node: &Arc<Node>,
    chain: &Chain,
    report: &Report,
) -> Result<Reply, Problem> {
    // It goes on while nobody can be asked, unless it is known that it may not.
    let unasked = || dead(chain).unwrap_or_else(|| decided(&report.id, Verdict::Allow, &[], None));
    if node.away().is_some() {
        return Ok(unasked());
    }
    let (output, text) = (Tokens(report.output_tokens), report.text.clone());
    let found = app.warden.reported(node, chain, &report.id, move |desk, told| {
        let mut ticket = told.ticket.clone()?;
        let new = Progress { output, text: &text };
        let decision = desk.progress(&told.call, &mut ticket, &Owner::Anybody, new);
        Warden::tally_at(desk, &decision.trips);
        told.ticket = Some(ticket.bare());
        Some(decision)
    });
    let Ok(found) = tokio::time::timeout(PATIENCE, found).await else { return Ok(unasked()) };
    let found = found.map_err(|gone| away(&gone.why))?;
    let (Some(decision), told) = found.ok_or_else(no_call)? else { return Err(no_call()) };
    let mut said = Said::default();
    said.response.push(&report.text);
    let incident =
        app.warden.record(chain, &told.call, told.number, &decision.trips, || said.clone());
    Ok(decided(&report.id, decision.verdict, &decision.trips, incident))
}

/// This call has ended. It is booked in any case; whoever waits does not wait for an outage.
pub(super) async fn book_in_time(
    app: &Arc<App>,
    node: &Arc<Node>,
    chain: &Chain,
    receipt: &Receipt,
) -> Result<Reply, Problem> {
    let (app, node, chain) = (Arc::clone(app), Arc::clone(node), chain.clone());
    let receipt = receipt.clone();
    let patience = if node.away().is_some() { Duration::ZERO } else { PATIENCE };
    let booked = tokio::spawn(async move { book(&app, &node, &chain, &receipt).await });
    match tokio::time::timeout(patience, booked).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => Err(Problem::new(Code::Internal, "the receipt was not booked")),
        Err(_) => {
            let text = "the state that nodes share is away; it is booked here when it is back";
            Err(Problem::new(Code::NotDurable, text))
        }
    }
}

async fn book(
    app: &App,
    node: &Arc<Node>,
    chain: &Chain,
    receipt: &Receipt,
) -> Result<Reply, Problem> {
    let ended = receipt.clone();
    let found = app.warden.reported(node, chain, &receipt.id, move |desk, told| {
        if let Some((status, body)) = &told.receipt {
            let body = serde_json::from_str(body).unwrap_or_default();
            return (Some(Reply { status: *status, body }), None);
        }
        let Some(ticket) = told.ticket.take() else { return (None, None) };
        let outcome = ended.outcome(&told.call);
        let decision = desk.settle(&told.call, ticket.clone(), &Owner::Anybody, &outcome);
        Warden::tally_at(desk, &decision.trips);
        let reply = decided(&ended.id, decision.verdict, &decision.trips, None);
        told.receipt = Some((reply.status, reply.body.to_string()));
        (Some(reply), Some((decision, outcome, ticket)))
    });
    let found = found.await.map_err(|gone| away(&gone.why))?;
    let ((reply, ended), told) = found.ok_or_else(no_call)?;
    let reply = reply.ok_or_else(no_call)?;
    let Some((decision, outcome, ticket)) = ended else { return Ok(reply) };
    let mut said = Said::default();
    said.response.push(receipt.text.as_deref().unwrap_or_default());
    let warned = told.trips().into_iter().next().map(Box::new);
    let call = Numbered::of(told.number, &ticket, warned);
    app.warden.book(chain, &told.call, call, &outcome, &decision, said);
    // A dead session hears that it is dead, although its receipt is booked.
    Ok(dead(chain).unwrap_or(reply))
}
