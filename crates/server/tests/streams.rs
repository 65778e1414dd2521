//! Many streams at once: how fast a kill reaches them, that nothing slips past it, what a client
//! that leaves costs, and what a budget really lets pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::dialect::chat_chunk;
use crate::support::wire::Next;
use crate::support::{
    Ask, Dice, Gate, Reply, Said, Seen, Speech, Step, heavy, percentile, rounds, soon, until,
};

/// What one output token of the model costs that the tests ask for.
const OUTPUT_USD: f64 = 10e-6;
/// What one token of its prompt costs.
const INPUT_USD: f64 = 2.5e-6;

fn relaxed() -> Value {
    json!({ "text_loop": { "enabled": false }, "strikes": { "enabled": false } })
}

/// An event of ten tokens: forty characters that are nowhere else.
fn ten_tokens(number: usize) -> Vec<u8> {
    chat_chunk(&json!({ "content": format!("{number:040}") }), None)
}

/// A stream of so many events, so far apart.
fn story(events: usize, pause: Duration) -> Reply {
    let mut reply = Reply::stream();
    for number in 0..events {
        reply = reply.then(Step::Tokens(ten_tokens(number), 10)).then(Step::Sleep(pause));
    }
    reply.then(Step::Chunk(b"data: [DONE]\n\n".to_vec())).then(Step::End)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_closes_every_stream_on_both_sides() {
    let _turn = heavy().await;
    let streams = rounds(100, 500);
    let gate = Gate::start(relaxed(), |_: &Seen| story(600, Duration::from_secs(1))).await;
    let (begun, mut ready) = tokio::sync::mpsc::unbounded_channel();
    let mut clients = Vec::new();
    for number in 0..streams {
        let ask = Speech::Chat.says(true, "Tell me a story").by("a", &format!("s{}", number % 50));
        let (address, begun) = (gate.address, begun.clone());
        clients.push(tokio::spawn(async move {
            let mut open = ask.open(address).await.unwrap();
            let first = open.next().await;
            assert!(open.status == 200 && matches!(first, Next::Bytes(_)), "{first:?}");
            begun.send(()).unwrap();
            let got = open.rest().await;
            (Instant::now(), got)
        }));
    }
    for _ in 0..streams {
        soon("a stream begins", ready.recv()).await.unwrap();
    }
    gate.upstream.answering(streams).await;
    let sent = Instant::now();
    gate.order("kill", json!({ "agent": "a", "reason": "enough" })).await;
    let acknowledged = Instant::now();

    let mut at_clients = Vec::new();
    for client in clients {
        let (ended, got) = soon("a stream ends", client).await.unwrap();
        assert!(got.complete, "a stream was cut without a clean end");
        let text = got.text();
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.contains("agent_killed") && last.starts_with("data: {\"error\""), "{last}");
        at_clients.push(ended);
    }
    gate.upstream.answering(0).await;
    let at_upstream = gate.upstream.gone();
    assert_eq!(at_upstream.len(), streams, "upstream connections that were closed");
    assert_eq!(gate.scope("a").await["in_flight"], 0);

    println!("{streams} streams, acknowledged {:.1} ms after the order; closed, in ms:", {
        (acknowledged - sent).as_secs_f64() * 1000.0
    });
    for (side, ends) in [("clients", at_clients), ("upstream", at_upstream)] {
        for (since, from) in [("acknowledgement", acknowledged), ("order", sent)] {
            let mut times: Vec<_> =
                ends.iter().map(|end| end.saturating_duration_since(from)).collect();
            let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
            println!("  {side:<8} from the {since:<15} p50 {p50:6.1}  p99 {p99:6.1}");
            assert!(p99 < 10_000.0, "{side}: p99 {p99} ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_admitted_after_the_acknowledgement() {
    let _turn = heavy().await;
    let tries = rounds(200, 1000);
    let gate = Arc::new(
        Gate::start(relaxed(), |_: &Seen| Speech::Chat.reply(false, &Said::text("Hello"))).await,
    );
    let mut dice = Dice::new(7);
    let (mut before, mut after) = (0, 0);
    for number in 0..tries {
        let agent = format!("a{number}");
        let acknowledged = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let ask = Speech::Chat.says(false, "Go on").by(&agent, &format!("s{caller}"));
                let (gate, acknowledged) = (Arc::clone(&gate), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    let (mut before, mut after) = (0, 0);
                    // Each goes on until it was refused after the acknowledgement, too.
                    while after < 2 {
                        let late = acknowledged.load(Ordering::SeqCst);
                        let got = gate.ask(&ask).await;
                        assert!([200, 403].contains(&got.status), "{}", got.text());
                        assert!(!late || got.status == 403, "admitted: {}", got.text());
                        before += usize::from(!late);
                        after += usize::from(late);
                    }
                    (before, after)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(dice.next() % 4000)).await;
        let order = [json!({ "agent": agent }), json!({ "all": true })][number % 2].clone();
        let killed = gate.order("kill", order.clone()).await;
        acknowledged.store(true, Ordering::SeqCst);
        for caller in callers {
            let counted = soon("a caller", caller).await.unwrap();
            before += counted.0;
            after += counted.1;
        }
        // By the ledger, too: what was admitted then is all that ever was.
        let now = match order["all"] == true {
            true => gate.project().await,
            false => gate.scope(&agent).await,
        };
        assert_eq!(killed["scope"]["model_calls"], now["model_calls"], "try {number}");
        gate.order("clear", order).await;
    }
    println!("{tries} kills under fire: {before} calls sent before, {after} after, none admitted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_reaches_a_call_whose_answer_has_not_begun() {
    let gate = Gate::start(relaxed(), |seen: &Seen| match seen.header("x-when") {
        Some("head") => Reply::default().then(Step::Hang),
        _ => Reply::head(200, &[("Content-Type", "application/json"), ("Content-Length", "1000")])
            .then(Step::Raw(b"{\"choices\":".to_vec()))
            .then(Step::Hang),
    })
    .await;
    for (when, stream) in [("head", true), ("head", false), ("body", false)] {
        let session = format!("{when}-{stream}");
        let ask = Speech::Chat.says(stream, "Go on").by("a", &session).with("x-when", when);
        let address = gate.address;
        let waiting = tokio::spawn(async move { ask.send_to(address).await });
        gate.upstream.answering(1).await;
        let order = json!({ "agent": "a", "session": session, "reason": "enough" });
        gate.order("kill", order).await;
        let asked = Instant::now();
        gate.upstream.answering(0).await;
        let got = soon("the refusal", waiting).await.unwrap();
        println!("killed {when} {stream}: closed after {:?}", asked.elapsed());
        assert_eq!((got.status, got.header("x-should-retry")), (403, Some("false")), "{when}");
        assert!(got.text().contains("enough"), "{}", got.text());
        assert_eq!(gate.scope(&session).await["in_flight"], 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_cancels_the_upstream_and_pays_for_what_there_was() {
    let gate = Gate::start(relaxed(), |seen: &Seen| match seen.header("x-when") {
        Some("head") => Reply::default().then(Step::Hang),
        Some("stream") => {
            let mut reply = Reply::stream();
            reply.0.extend((0..5).map(|number| Step::Tokens(ten_tokens(number), 10)));
            reply.then(Step::Hang)
        }
        _ => Reply::head(200, &[("Content-Type", "application/json"), ("Content-Length", "1000")])
            .then(Step::Raw(b"{\"choices\":".to_vec()))
            .then(Step::Hang),
    })
    .await;
    for (when, stream) in [("head", true), ("head", false), ("stream", true), ("json", false)] {
        let session = format!("{when}-{stream}");
        let ask = Speech::Chat.says(stream, "Go on").by("a", &session).with("x-when", when);
        let mut times = Vec::new();
        for _ in 0..rounds(10, 100) {
            let before = gate.upstream.gone().len();
            let left = if when == "stream" {
                let mut open = soon("the head", ask.open(gate.address)).await.unwrap();
                open.until(&format!("{:040}", 4)).await;
                drop(open);
                Instant::now()
            } else {
                let wire = ask.send(gate.address).await;
                gate.upstream.answering(1).await;
                drop(wire);
                Instant::now()
            };
            gate.upstream.answering(0).await;
            let noticed = gate.upstream.gone()[before];
            times.push(noticed.saturating_duration_since(left));
        }
        println!(
            "client left ({when}, stream {stream}): upstream cancelled after p50 {:.2} ms, p99 {:.2}",
            percentile(&mut times, 50),
            percentile(&mut times, 99)
        );
        assert!(percentile(&mut times, 50) < 5000.0);
        until("settled", async || gate.scope(&session).await["in_flight"] == 0).await;
        let scope = gate.scope(&session).await;
        let calls = times.len() as u64;
        assert_eq!(scope["model_calls"], calls);
        assert_eq!(scope["reserved_usd"], 0.0, "{scope}");
        assert!(scope["input_tokens"].as_u64().unwrap() >= calls, "{scope}");
        if when == "stream" {
            assert_eq!(scope["output_tokens"], 50 * calls, "{scope}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_broke_off_still_costs() {
    let gate = Gate::start(relaxed(), |_: &Seen| {
        let mut reply = Reply::stream();
        reply.0.extend((0..5).map(|number| Step::Tokens(ten_tokens(number), 10)));
        // Time for the bytes to arrive: a reset overtakes them.
        reply.then(Step::Sleep(Duration::from_millis(100))).then(Step::Reset)
    })
    .await;
    let got = gate.ask(&Speech::Chat.says(true, "Go on").by("a", "s")).await;
    assert!(got.text().contains(&format!("{:040}", 4)) && !got.complete, "{}", got.text());
    let scope = gate.scope("s").await;
    assert_eq!((&scope["in_flight"], &scope["output_tokens"]), (&json!(0), &json!(50)), "{scope}");
}

/// A hundred streams of 2,000 tokens at once, against ten cents: what the clients got, in dollars, and
/// how many streams were let in. What the upstream has sent is no measure: while the gateway waits
/// for a grant, the upstream fills the sockets between them.
async fn spend(reservation: &str, max_tokens: Option<u64>) -> (f64, usize) {
    let mut policy = relaxed();
    policy["budget"] = json!({ "max_cost_usd": 0.10, "reservation": reservation });
    // A cluster that does not answer in time lets calls pass under `open`: this is not about that.
    policy["fail_mode"] = json!("closed");
    let gate = Gate::start(policy, |_: &Seen| story(200, Duration::from_millis(10))).await;
    let mut request = Speech::Chat.request(true, &[]);
    request["messages"] = json!([{ "role": "user", "content": "Write a book" }]);
    if let Some(max_tokens) = max_tokens {
        request["max_tokens"] = json!(max_tokens);
    }
    let ask = Ask::post(Speech::Chat.path(true), &request).by("a", "s");
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let (ask, address) = (ask.clone(), gate.address);
            tokio::spawn(async move { ask.send_to(address).await })
        })
        .collect();
    let (mut whole, mut cut, mut refused) = (0, 0, 0);
    let mut delivered = 0;
    for client in clients {
        let got = soon("a stream", client).await.unwrap();
        delivered += 10 * got.text().matches(&"0".repeat(37)).count();
        match got.status {
            200 if got.text().contains("[DONE]") => whole += 1,
            200 => {
                assert!(got.complete && got.text().contains("\"deadstop\""), "a bare cut");
                cut += 1;
            }
            402 | 429 | 503 => refused += 1,
            other => panic!("{other}: {}", got.text()),
        }
    }
    gate.upstream.answering(0).await;
    let let_in = whole + cut;
    assert_eq!(gate.upstream.requests(), let_in);
    // A prompt is as long as the gateway says: the upstream has no tokens of its own for it.
    let scope = gate.scope("s").await;
    let prompts = scope["input_tokens"].as_f64().unwrap() * INPUT_USD;
    let spent = delivered as f64 * OUTPUT_USD + prompts;
    let sent = gate.upstream.tokens() as f64 * OUTPUT_USD + prompts;
    let ledger = scope["cost_usd"].as_f64().unwrap();
    println!(
        "{reservation}, max_tokens {max_tokens:?}: {whole} whole, {cut} cut, {refused} refused; \
         ${spent:.4} passed on, ${sent:.4} sent by the upstream, ${ledger:.4} in the ledger, of $0.1000"
    );
    (spent, let_in)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_streams_stay_within_a_ceiling() {
    let _turn = heavy().await;
    // An upstream that keeps to the request's limit, one that does not, and no limit at all.
    for max_tokens in [Some(2000), Some(500), None] {
        let (spent, streams) = spend("ceiling", max_tokens).await;
        assert!(streams > 0);
        assert!(spent <= 0.10, "${spent} of $0.10 with {streams} streams");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_streams_under_expected_costs() {
    let _turn = heavy().await;
    for max_tokens in [Some(2000), None] {
        let (spent, _) = spend("expected", max_tokens).await;
        // Nothing is promised here but that it ends near the limit.
        assert!(spent < 0.20, "${spent} of $0.10");
    }
}
