//! `deadstop demo cleanup`: an agent that is to clean up a catalogue over MCP. What it deletes still
//! exists, so it tries again; the third attempt ends its session, and the audit says why.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use deadstop_core::Preset;
use deadstop_server::{RawConfig, RawMcp, RawMcpServer};
use serde_json::{Value, json};

use super::catalogue;
use crate::client::Client;
use crate::ui;

/// So that a person can follow.
const PACE: Duration = Duration::from_millis(350);
/// Attempts after which the agent would give up by itself.
const MOST: usize = 12;

/// A folder that is gone when the demonstration is over.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The agent's side.
struct Agent {
    client: Client,
    asked: u64,
    loud: bool,
}

impl Agent {
    async fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.asked += 1;
        let message =
            json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params });
        self.client.post("/agent/janitor/session/demo/mcp/catalogue", &message).await
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let shown = format!("  calls {tool} {arguments}");
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.ask("tools/call", params).await?;
        let said = match answer["error"]["message"].as_str() {
            Some(why) => format!("STOPPED {why}"),
            None => {
                let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
                ui::printable(&text.replace('\n', ", "))
            }
        };
        self.say(&format!("{shown} -> {said}"));
        if self.loud {
            tokio::time::sleep(PACE).await;
        }
        Ok(answer)
    }

    fn say(&self, line: &str) {
        if self.loud {
            println!("{line}");
        }
    }
}

/// Runs it; true if it went as it should.
pub(super) async fn run(as_json: bool) -> anyhow::Result<bool> {
    let folder = Folder(std::env::temp_dir().join(format!("deadstop-demo-{}", std::process::id())));
    let catalogue = catalogue::start((std::net::Ipv4Addr::LOCALHOST, 0).into()).await?;
    let url = format!("http://{catalogue}/mcp");
    let servers = [("catalogue".to_owned(), RawMcpServer { url: Some(url), ..Default::default() })];
    let raw = RawConfig {
        listen: Some("127.0.0.1:0".to_owned()),
        data: Some(folder.0.clone()),
        mcp: RawMcp { servers: servers.into_iter().collect() },
        ..RawConfig::default()
    };
    let server = crate::start(raw.resolve(Preset::Balanced.policies(), |_| None)?).await?;
    let client = Client::new(&format!("http://{}", server.address()))?;
    let mut agent = Agent { client, asked: 0, loud: !as_json };
    agent.say(
        "An agent cleans up a data catalogue, over MCP, through a real gateway (policy: balanced).\n\n\
         janitor: \"clean up: remove the asset fact_sales\"",
    );
    let told = work(&mut agent).await;
    server.stop().await;
    let told = told?;
    match as_json {
        true => println!("{told}"),
        false => println!(
            "\nAudit: {}\nIts next call: {}\nIncident: {}",
            ui::text(&told["audit"]),
            ui::text(&told["later"]),
            ui::text(&told["incident"])
        ),
    }
    let sentence = told["audit"].as_str().unwrap_or_default();
    Ok(told["attempts"] == 3
        && sentence.starts_with("loop_detected: delete_asset on asset_id=fact_sales 3 times in")
        && told["later"] == "session_killed_loop_guard")
}

async fn work(agent: &mut Agent) -> anyhow::Result<Value> {
    let opening = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "janitor", "version": "1" } });
    agent.ask("initialize", opening).await?;
    let tools = agent.ask("tools/list", json!({})).await?;
    ensure!(tools["result"]["tools"].as_array().is_some_and(|tools| tools.len() == 7));
    agent.call("list_assets", json!({})).await?;
    let mut stopped = Value::Null;
    let mut attempts = 0;
    while stopped.is_null() && attempts < MOST {
        attempts += 1;
        let answer = agent.call("delete_asset", json!({ "asset_id": "fact_sales" })).await?;
        stopped = answer["error"].clone();
    }
    // It would go on with something else.
    let later = agent.call("drop_table", json!({ "table": "sales.orders" })).await?;
    let audit = agent.client.get("/api/audit?limit=20").await?;
    let mut entries = audit["items"].as_array().context("there is no audit")?.iter();
    let entry = entries.rfind(|entry| entry["action"] == "session.kill");
    Ok(json!({
        "attempts": attempts,
        "stopped": stopped["message"],
        "incident": stopped["data"]["incident"],
        "audit": entry.map(|entry| entry["reason"].clone()),
        "later": later["error"]["data"]["reason"],
    }))
}
