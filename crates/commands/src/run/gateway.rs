//! The gateway of a run: a private one in this process, or a server that is already there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use deadstop_server::Server;
use serde_json::json;

use super::environment::{self, Names, Shown};
use super::join::{self, Join, Settings};
use super::limits::Limits;
use super::watch::{Begun, Reach, Watch};
use super::{Args, Run};
use crate::client::encoded;
use crate::ui::Hinted;
use crate::{config, operator, policy, remote};

/// A gateway that is ready, and what the command has to be told of it.
pub(super) struct Gateway {
    /// Ours, if it is private.
    pub(super) server: Option<Server>,
    pub(super) watch: Watch,
    pub(super) variables: Vec<(String, String)>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
    /// The key that the command has for the time of this run.
    lent: Option<Lent>,
}

/// A key for the command alone: an agent's, bound to this agent. The one that `deadstop run` was given
/// may do more, and stays here.
struct Lent {
    id: String,
    key: String,
}

impl Lent {
    async fn borrow(access: &remote::Server, run: &Run, role: &str) -> anyhow::Result<Lent> {
        let order = json!({ "name": run.session, "role": "agent", "agent": run.agent });
        let made = match role {
            "admin" => access.client()?.post("/api/keys", &order).await?,
            _ => {
                let problem = format!(
                    "the key has the role {role}: with it the command could lift its own stop"
                );
                let hint = "use an agent's key: deadstop keys create --role agent --agent NAME";
                return Err(Hinted::error(problem, hint));
            }
        };
        let text = |field: &str| made[field].as_str().unwrap_or_default().to_owned();
        Ok(Lent { id: text("id"), key: text("key") })
    }

    async fn give_back(&self, access: &remote::Server) {
        let Ok(client) = access.client() else { return };
        if let Err(error) = client.delete(&format!("/api/keys/{}", encoded(&self.id))).await {
            eprintln!("warning: the command's key {} is still in force: {error:#}", self.id);
        }
    }
}

impl Gateway {
    /// Finds or starts it.
    pub(super) async fn open(args: &Args, run: &Run) -> anyhow::Result<Gateway> {
        if let Some(url) = &args.server {
            return Self::shared(url, args, run).await;
        }
        let typed = args.policy.is_some() || args.data.is_some() || args.config.is_some();
        let settings = if typed { Settings::Typed } else { Settings::Untyped };
        let (mut gateway, note) = match join::decide(settings, variable).await {
            Join::Named(url) | Join::Found(url) => {
                (Self::shared(&url, args, run).await?, Some(joined(&url)))
            }
            Join::Own(note) => (Self::private(args, run).await?, note),
        };
        gateway.notes.extend(note);
        Ok(gateway)
    }

    async fn shared(url: &str, args: &Args, run: &Run) -> anyhow::Result<Gateway> {
        let url = url.trim_end_matches('/').to_owned();
        let (key_file, project) = (args.key_file.clone(), args.project.clone());
        let access = Arc::new(remote::Server::named(&url, key_file, project));
        let names = Names { agent: &run.agent, session: &run.session };
        let reach = Reach::Agent { before: HashMap::new() };
        let mut watch = watch(Arc::clone(&access), run, reach, args.limits.clone());
        let (key, lent) = match watch.begin().await? {
            Begun::WithOwnKey => (access.key()?, None),
            Begun::WithKeyOfRole(role) => {
                let lent = Lent::borrow(&access, run, &role).await?;
                (Some(lent.key.clone()), Some(lent))
            }
            Begun::WithoutKey => (None, None),
        };
        let shown = Shown { key, project: access.project().map(str::to_owned) };
        let (variables, notes) = environment::shared(&url, &names, &shown, variable);
        Ok(Gateway { server: None, watch, variables, notes, lent })
    }

    async fn private(args: &Args, run: &Run) -> anyhow::Result<Gateway> {
        let config = args.config.clone().or_else(|| filled("DEADSTOP_CONFIG").map(PathBuf::from));
        let mut raw = config::read(config.as_deref())?;
        let roads = environment::reroute(&mut raw.providers, variable);
        raw.listen = Some("127.0.0.1:0".to_owned());
        // The file's folder belongs to `deadstop serve`, which may be running.
        raw.data.clone_from(&args.data);
        let source = args.policy.clone().or_else(|| filled("DEADSTOP_POLICY"));
        let source = source.or_else(|| raw.policy.clone());
        let mut policies = policy::load(source.as_deref().unwrap_or("balanced"))?;
        let mut limits = args.limits.clone();
        limits.apply(&mut policies);
        limits.adopt(&policies);
        let mut config = raw
            .resolve(policies, variable)
            .context("bad configuration (deadstop.toml, or a base URL in the environment)")?;
        config.default_agent.clone_from(&run.agent);
        config.default_session = Some(run.session.clone());
        config.operator = Some(operator::of_server()?);
        let server = crate::start(config).await?;
        // Opens the session, so that it can be seen and ended before its first call.
        server.session(&run.agent, &run.session).await;
        let url = format!("http://{}", server.address());
        let names = Names { agent: &run.agent, session: &run.session };
        let variables = environment::private(&url, &roads, &names, variable);
        let access = Arc::new(remote::Server::named(&url, None, None).without_key());
        let watch = watch(access, run, Reach::Everything, limits);
        Ok(Gateway { server: Some(server), watch, variables, notes: Vec::new(), lent: None })
    }

    /// The name of the guard that ended the session, where that is known.
    pub(super) async fn guard(&self) -> Option<&'static str> {
        let server = self.server.as_ref()?;
        let state = server.session(&self.watch.agent, &self.watch.session).await?;
        state.killed()?.guard.map(deadstop_core::GuardId::name)
    }

    /// Writes down what there is to write.
    pub(super) async fn close(self, data: Option<&Path>) {
        if let Some(lent) = &self.lent {
            lent.give_back(&self.watch.server).await;
        }
        if let (Some(server), Some(_)) = (self.server, data) {
            server.stop().await;
        }
    }
}

fn joined(url: &str) -> String {
    format!(
        "joined the server at {url}, whose policy holds; DEADSTOP_SERVER=none for a gateway alone"
    )
}

fn watch(server: Arc<remote::Server>, run: &Run, reach: Reach, limits: Limits) -> Watch {
    Watch { server, agent: run.agent.clone(), session: run.session.clone(), reach, limits }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn filled(name: &str) -> Option<String> {
    variable(name).filter(|value| !value.is_empty())
}
