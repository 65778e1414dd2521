//! Calls in flight: killed, held, too slow, broken off and taken up again.

use std::time::Duration;

use serde_json::{Value, json};

use super::{call, error, event, gate, post, said, servers};
use crate::support::{Ask, Gate, Reply, Said, Speech, Step, Turn, soon, until};

fn cancelled(gate: &Gate) -> bool {
    let last = gate.upstream.last().json();
    last["method"] == "notifications/cancelled" && last["params"]["requestId"] == 7
}

/// A call that runs until it is killed: before its answer, and in a stream that has begun.
#[tokio::test]
async fn a_kill_reaches_a_call_in_flight() {
    for stream in [false, true] {
        let gate = gate(json!({}), move |seen| {
            if seen.json()["method"] != "tools/call" {
                return Reply::head(202, &[("Content-Length", "0")]);
            }
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
            match stream {
                true => Reply::stream().then(Step::Chunk(event(&progress))).then(Step::Hang),
                false => Reply(vec![Step::Hang]),
            }
        })
        .await;
        let slow = post("files", &call(7, "slow", json!({}))).by("a", "s").with("x-own", "1");
        let (begun, begins) = tokio::sync::oneshot::channel();
        let asked = tokio::spawn({
            let (slow, address) = (slow.clone(), gate.address);
            async move {
                if !stream {
                    begun.send(()).unwrap();
                    return slow.send_to(address).await;
                }
                let mut answering = Box::pin(slow.open(address)).await.unwrap();
                answering.until("notifications/progress").await;
                begun.send(()).unwrap();
                Box::pin(answering.rest()).await
            }
        });
        soon("its beginning", begins).await.unwrap();
        until("the call", || async { gate.scope("s").await["in_flight"] == 1 }).await;
        gate.upstream.answering(1).await;
        let order = json!({ "agent": "a", "session": "s", "reason": "enough" });
        gate.order("kill", order).await;
        let got = soon("the answer", asked).await.unwrap();
        let error = error(&got);
        assert_eq!(error["code"], 403, "{error}");
        assert!(error["message"].as_str().unwrap().contains("enough"), "{error}");
        assert!(error["message"].as_str().unwrap().ends_with("Do not retry."), "{error}");
        until("the cancellation", || async { cancelled(&gate) }).await;
        assert_eq!(gate.upstream.last().header("x-own"), Some("1"));
        let later = super::error(&gate.ask(&slow).await);
        assert_eq!(later["data"]["guard"], "killed");
        assert_eq!(gate.scope("s").await["in_flight"], 0);
    }
}

#[tokio::test]
async fn a_pause_holds_a_call() {
    let gate = gate(json!({}), |seen| Reply::json(200, &said(seen, "done"))).await;
    let ask = post("files", &call(1, "read", json!({}))).by("a", "s");
    assert!(error(&gate.ask(&ask).await).is_null());
    let order = json!({ "agent": "a", "session": "s", "reason": "wait" });
    gate.order("pause", order.clone()).await;
    let asked = tokio::spawn({
        let (ask, address) = (ask.clone(), gate.address);
        async move { ask.send_to(address).await }
    });
    // Others pass meanwhile.
    let other = post("files", &call(1, "read", json!({}))).by("a", "other");
    assert!(error(&gate.ask(&other).await).is_null());
    assert_eq!(gate.upstream.requests(), 2);
    assert!(!asked.is_finished());
    gate.order("resume", order).await;
    assert!(error(&soon("the answer", asked).await.unwrap()).is_null());
    assert_eq!(gate.upstream.requests(), 3);
}

#[tokio::test]
async fn a_server_that_takes_too_long_has_failed() {
    for stream in [false, true] {
        let gate = Gate::with(
            json!({}),
            move |seen| match seen.json()["method"] == "tools/call" {
                true if stream => Reply::stream().then(Step::Hang),
                true => Reply(vec![Step::Hang]),
                false => Reply::head(202, &[("Content-Length", "0")]),
            },
            |config| servers(config, Duration::from_millis(200)),
        )
        .await;
        let got = gate.ask(&post("files", &call(7, "slow", json!({}))).by("a", "s")).await;
        assert_eq!(error(&got)["data"]["reason"], "timeout");
        until("the cancellation", || async { cancelled(&gate) }).await;
        until("the record", || async {
            let calls = gate.ask(&Ask::get("/api/calls?limit=5")).await.json();
            calls["items"][0]["status"] == "fault"
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_has_failed() {
    let gate = gate(json!({}), |_| Reply(vec![Step::Reset])).await;
    let got = gate.ask(&post("files", &call(7, "slow", json!({}))).by("a", "s")).await;
    assert_eq!(error(&got)["data"]["reason"], "server_unreachable");
    let got = gate.ask(&post("files", &json!({ "id": 1, "method": "ping" }))).await;
    assert_eq!(got.status, 502);
}

/// A stream that breaks off is no failure where it can be taken up again.
#[tokio::test]
async fn an_answer_may_come_on_another_stream() {
    let gate = gate(json!({}), |seen| {
        if seen.method == "GET" {
            assert_eq!(seen.header("last-event-id"), Some("1-0"));
            let answer = json!({
                "jsonrpc": "2.0", "id": 7, "result": { "content": [], "isError": true },
            });
            return Reply::events(&[event(&answer)]);
        }
        Reply::events(&[b"id: 1-0\ndata:\n\n".to_vec()])
    })
    .await;
    if gate.addresses().len() > 1 {
        // A stream is taken up on the node that had it: balancers keep the protocol's sessions
        // together.
        return;
    }
    let ask = post("files", &call(7, "slow", json!({}))).with("mcp-session-id", "m1");
    let got = gate.ask(&ask.by("a", "s")).await;
    assert_eq!(got.text(), "id: 1-0\ndata:\n\n");
    assert_eq!(gate.scope("s").await["in_flight"], 1);
    let more = Ask::get("/mcp/files")
        .with("accept", "text/event-stream")
        .with("last-event-id", "1-0")
        .with("mcp-session-id", "m1");
    let got = gate.ask(&more).await;
    assert!(got.text().contains("isError"), "{}", got.text());
    until("the end", || async { gate.scope("s").await["in_flight"] == 0 }).await;
    until("the record", || async {
        let calls: Value = gate.ask(&Ask::get("/api/calls?limit=5")).await.json();
        calls["items"][0]["status"] == "error"
    })
    .await;
}

/// A call is killed whose stream had broken off: its client hears of it when it comes back, whatever
/// the server says then, or at once if it is back already.
#[tokio::test]
async fn a_kill_is_told_on_the_stream_that_is_taken_up() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Way {
        BackBefore,
        BackAfter,
        ServerKnowsNothing,
        ServerIsGone,
    }
    for way in [Way::BackBefore, Way::BackAfter, Way::ServerKnowsNothing, Way::ServerIsGone] {
        let gate = gate(json!({}), move |seen| match (seen.method.as_str(), way) {
            ("GET", Way::ServerKnowsNothing) => Reply::json(404, &json!({})),
            ("GET", Way::ServerIsGone) => Reply(vec![Step::Reset]),
            ("GET", _) => {
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
                Reply::stream().then(Step::Chunk(event(&progress))).then(Step::Hang)
            }
            _ if seen.json()["method"] == "tools/call" => {
                Reply::events(&[b"id: 1-0\ndata:\n\n".to_vec()])
            }
            _ => Reply::head(202, &[("Content-Length", "0")]),
        })
        .await;
        if gate.addresses().len() > 1 {
            // As above: it is the node that had the stream that has something to say.
            return;
        }
        let ask = post("files", &call(7, "slow", json!({}))).with("mcp-session-id", "m1");
        gate.ask(&ask.by("a", "s")).await;
        let rest = Ask::get("/mcp/files").with("accept", "text/event-stream");
        let rest = rest.with("last-event-id", "1-0");
        let more = rest.clone().with("mcp-session-id", "m1");
        let order = json!({ "agent": "a", "session": "s", "reason": "enough" });
        let mut back = match way {
            Way::BackBefore => {
                let mut back = Box::pin(more.open(gate.address)).await.unwrap();
                back.until("notifications/progress").await;
                gate.order("kill", order).await;
                back
            }
            _ => {
                gate.order("kill", order).await;
                until("the end", || async { gate.scope("s").await["in_flight"] == 0 }).await;
                until("the cancellation", || async { cancelled(&gate) }).await;
                // A client of another session is told nothing of it.
                if way == Way::ServerKnowsNothing {
                    let other = rest.with("mcp-session-id", "m2");
                    assert_eq!(gate.ask(&other).await.status, 404);
                }
                Box::pin(more.open(gate.address)).await.unwrap()
            }
        };
        let told = back.until("Do not retry.").await;
        assert!(told.contains("enough") && told.contains("\"id\":7"), "{way:?}: {told}");
    }
}

/// A server that asks something back in the middle of a call.
#[tokio::test]
async fn requests_of_the_server_pass_both_ways() {
    let gate = gate(json!({}), |seen| {
        let sampling = json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage" });
        match seen.json()["method"].as_str() {
            Some("tools/call") => Reply::events(&[event(&sampling), event(&said(seen, "done"))]),
            // The client's answer.
            None => Reply::head(202, &[("Content-Length", "0")]),
            Some(other) => panic!("{other}"),
        }
    })
    .await;
    let got = gate.ask(&post("files", &call(1, "think", json!({}))).by("a", "s")).await;
    assert!(got.text().contains("sampling/createMessage") && got.text().contains("done"));
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "role": "assistant" } });
    assert_eq!(gate.ask(&post("files", &answer).by("a", "s")).await.status, 202);
    assert_eq!(gate.upstream.last().json(), answer);
}

/// A tool call that fits as soon as a model call has settled waits for that, as a model call does.
#[tokio::test]
async fn a_tool_call_waits_for_room_in_a_budget() {
    let prices = json!({ "pay": 0.02 });
    let budget = json!({ "max_cost_usd": 0.05, "reservation": "ceiling", "tool_prices": prices });
    let gate = gate(json!({ "budget": budget }), |seen| {
        if seen.json()["method"] == "tools/call" {
            return Reply::json(200, &said(seen, "paid"));
        }
        // $0.04 are reserved for it, and it costs less than a cent.
        let answer = Said { input: 10, output: 10, ..Said::text("Hello") };
        let mut reply = Reply::default().then(Step::Sleep(Duration::from_millis(500)));
        reply.0.extend(Speech::Chat.reply(false, &answer).0);
        reply
    })
    .await;
    let mut body = Speech::Chat.request(false, &[Turn::User("hi".into())]);
    body["max_tokens"] = json!(4000);
    let model = Ask::post(Speech::Chat.path(false), &body).by("a", "s");
    let address = gate.address;
    let asked = tokio::spawn(async move { model.send_to(address).await });
    until("the model call", || async { gate.scope("s").await["in_flight"] == 1 }).await;
    let paid = gate.ask(&post("files", &call(1, "pay", json!({}))).by("a", "s")).await;
    assert_eq!(error(&paid), Value::Null, "{}", paid.text());
    assert_eq!(soon("the answer", asked).await.unwrap().status, 200);
    assert_eq!(gate.counted("deadstop_queued_total").await, 1.0);
}

/// A call may be answered at once with a task that runs on at the server. A kill reaches that, too.
#[tokio::test]
async fn hole_06_a_task_is_cancelled_when_its_agent_is_killed() {
    for stream in [false, true] {
        let gate = gate(json!({}), move |seen| {
            let task = json!({ "taskId": "t-1", "status": "working", "ttl": 60_000 });
            let begun =
                json!({ "jsonrpc": "2.0", "id": seen.json()["id"], "result": { "task": task } });
            match seen.json()["method"].as_str() {
                Some("tools/call") if stream => Reply::events(&[event(&begun)]),
                Some("tools/call") => Reply::json(200, &begun),
                _ => Reply::head(202, &[("Content-Length", "0")]),
            }
        })
        .await;
        let got = gate.ask(&post("files", &call(1, "import", json!({}))).by("a", "s")).await;
        assert!(got.text().contains("t-1"), "{}", got.text());
        gate.order("kill", json!({ "agent": "a", "reason": "enough" })).await;
        until("the cancellation", async || {
            let told = gate.upstream.last().json();
            told["method"] == "tasks/cancel" && told["params"] == json!({ "taskId": "t-1" })
        })
        .await;
        let ask = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": { "taskId": "t-1" } });
        let refused = error(&gate.ask(&post("files", &ask).by("a", "s")).await);
        assert_eq!(refused["data"]["reason"], "agent_killed", "{refused}");
    }
}
