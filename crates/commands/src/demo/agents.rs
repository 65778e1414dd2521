//! Three small agents. They know nothing of Deadstop: they talk to a base URL.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// Steps after which an agent of the demo gives up by itself.
const MOST_STEPS: usize = 12;
/// So that a person can follow.
const PACE: Duration = Duration::from_millis(350);

/// Where the agents play.
pub(super) struct Stage {
    gateway: SocketAddr,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    loud: bool,
}

/// How an agent ended.
pub(super) enum End {
    /// It finished its work.
    Finished(String),
    /// It was stopped, and this is why.
    Stopped(String),
    /// It gave up by itself.
    GaveUp,
}

impl End {
    pub(super) fn stopped(&self) -> bool {
        matches!(self, End::Stopped(_))
    }

    pub(super) fn json(&self) -> Value {
        match self {
            End::Finished(text) => json!({ "stopped": false, "text": text }),
            End::Stopped(why) => json!({ "stopped": true, "text": why }),
            End::GaveUp => json!({ "stopped": false, "text": "gave up" }),
        }
    }
}

impl Stage {
    pub(super) fn new(gateway: SocketAddr, loud: bool) -> Stage {
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Stage { gateway, http, loud }
    }

    async fn ask(&self, agent: &str, body: &Value) -> anyhow::Result<Response<Incoming>> {
        let uri = format!("http://{}/agent/{agent}/openai/v1/chat/completions", self.gateway);
        let request = Request::post(uri)
            .header("content-type", "application/json")
            .header("x-deadstop-session", "demo")
            .body(Full::new(Bytes::from(body.to_string())))?;
        self.http.request(request).await.context("the gateway does not answer")
    }

    fn say(&self, line: &str) {
        if self.loud {
            println!("{line}");
        }
    }

    async fn pause(&self) {
        if self.loud {
            tokio::time::sleep(PACE).await;
        }
    }

    fn tell(&self, end: End) -> End {
        match &end {
            End::Finished(text) => self.say(&format!("  FINISHED  {text}\n")),
            End::Stopped(why) => self.say(&format!("  STOPPED   {why}\n")),
            End::GaveUp => self.say("  gave up by itself\n"),
        }
        end
    }
}

/// Told to clean up; the catalogue says that the asset still exists; it tries again.
pub(super) async fn janitor(stage: &Stage) -> anyhow::Result<End> {
    stage.say("janitor: \"clean up the asset fact_sales\"");
    work(stage, "janitor", |_| "asset still exists".to_owned()).await
}

/// Reads three tables and reports: what a healthy agent looks like.
pub(super) async fn reporter(stage: &Stage) -> anyhow::Result<End> {
    stage.say("reporter: \"summarise the sales of three regions\"");
    work(stage, "reporter", |arguments| {
        let region = arguments["region"].as_str().unwrap_or_default();
        format!(
            "{region}: {} units",
            region.len() * 1000 + region.bytes().map(usize::from).sum::<usize>()
        )
    })
    .await
}

/// The loop that most agents are: ask, run the tool, ask again.
async fn work(stage: &Stage, name: &str, tool: impl Fn(&Value) -> String) -> anyhow::Result<End> {
    let mut messages = vec![json!({ "role": "user", "content": "please do your work" })];
    for _ in 0..MOST_STEPS {
        let body = json!({ "model": format!("stand-in-{name}"), "messages": messages });
        let answer = read(stage.ask(name, &body).await?).await?;
        if let Some(why) = answer["error"]["message"].as_str() {
            return Ok(stage.tell(End::Stopped(why.to_owned())));
        }
        let message = answer["choices"][0]["message"].clone();
        let call = message["tool_calls"][0].clone();
        messages.push(message.clone());
        if call.is_null() {
            let text = message["content"].as_str().unwrap_or_default();
            return Ok(stage.tell(End::Finished(text.to_owned())));
        }
        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
        let result = tool(&serde_json::from_str(arguments).unwrap_or_default());
        let function = call["function"]["name"].as_str().unwrap_or_default();
        stage.say(&format!("  calls {function} {arguments} -> {result}"));
        messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": result }));
        stage.pause().await;
    }
    Ok(stage.tell(End::GaveUp))
}

/// Asks for one answer that never ends.
pub(super) async fn writer(stage: &Stage) -> anyhow::Result<End> {
    stage.say("writer: \"write about sales\" (one answer, streamed)");
    let body = json!({
        "model": "stand-in-writer",
        "stream": true,
        "messages": [{ "role": "user", "content": "write about sales" }],
    });
    let mut stream = stage.ask("writer", &body).await?.into_body();
    let (mut events, mut rest) = (0usize, Vec::new());
    while let Some(frame) = stream.frame().await {
        let Ok(bytes) = frame.context("the stream broke off")?.into_data() else { continue };
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.windows(2).position(|w| w == b"\n\n") {
            let event: Vec<u8> = rest.drain(..end + 2).collect();
            let data = event.strip_prefix(b"data: ").unwrap_or_default();
            let chunk: Value = serde_json::from_slice(data).unwrap_or_default();
            if let Some(why) = chunk["error"]["message"].as_str() {
                return Ok(stage.tell(End::Stopped(why.to_owned())));
            }
            events += 1;
            if events.is_multiple_of(100) {
                stage.say(&format!("  {events} events so far …"));
            }
        }
    }
    Ok(stage.tell(End::Finished(format!("{events} events"))))
}

async fn read(response: Response<Incoming>) -> anyhow::Result<Value> {
    let body = response.into_body().collect().await.context("the answer broke off")?.to_bytes();
    serde_json::from_slice(&body).context("the answer is not JSON")
}
