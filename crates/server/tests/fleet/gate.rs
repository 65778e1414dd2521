//! A fleet with a scripted upstream behind every provider: the stand-in for the one server of
//! `support/server.rs`, with the same ways in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deadstop_server::{Config, OnKill};
use deadstop_store::Store;
use serde_json::{Value, json};

use crate::fleet::balancer::Balancer;
use crate::fleet::node::Node;
use crate::fleet::redis::{Redis, Way};
use crate::place::TestDatabase;
use crate::support::both::config;
use crate::support::{Ask, Got, Reply, Seen, Upstream};

/// How many nodes there are, where the number is not changed.
pub(crate) const NODES: usize = 3;

/// How many nodes there are: three, unless one wants to see whether it is the number that matters.
fn many() -> usize {
    std::env::var("DEADSTOP_NODES").ok().and_then(|many| many.parse().ok()).unwrap_or(NODES)
}

/// The fleet between both ends.
pub(crate) struct Gate {
    /// The balancer's.
    pub(crate) address: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) nodes: Vec<Node>,
    pub(crate) redis: Redis,
    way: Way,
    pub(crate) database: String,
    balancer: Balancer,
}

impl Gate {
    /// Starts one under a policy (as JSON), with everything else at its default.
    pub(crate) async fn start(
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Gate {
        Gate::with(policy, answer, |_| {}).await
    }

    /// Starts one with a changed configuration.
    pub(crate) async fn with(
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        Gate::at(&TestDatabase::postgres().await.address, policy, answer, change).await
    }

    /// Starts one on a database of its own.
    pub(crate) async fn on(
        place: &TestDatabase,
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        Gate::at(&place.address, policy, answer, change).await
    }

    /// The same by the database's address.
    pub(crate) async fn at(
        database: &str,
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        let redis = aside(Redis::start).await;
        let way = redis.way();
        Gate::over(database, (redis, way), policy, answer, change).await
    }

    /// The same on a Redis that is there, and the way that nodes reach it.
    pub(crate) async fn over(
        database: &str,
        (redis, way): (Redis, Way),
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        let upstream = Upstream::start(answer).await;
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(upstream.address, policy.clone());
        change(&mut config);
        std::fs::write(folder.path().join("deadstop.toml"), written(&config)).unwrap();
        let database = database.to_owned();
        let nodes = nodes(folder.path(), &policy, &database, &way).await;
        let balancer = Balancer::start(addresses(&nodes)).await;
        let address = balancer.address;
        Gate { address, upstream, folder, nodes, redis, way, database, balancer }
    }

    /// Where its nodes listen.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.nodes)
    }

    /// Where a certain node listens, counted from 0; if there are fewer, some are the same.
    pub(crate) fn node(&self, number: usize) -> SocketAddr {
        self.nodes[number % self.nodes.len()].address
    }

    /// Asks a certain node.
    pub(crate) async fn ask_at(&self, node: usize, ask: &Ask) -> Got {
        ask.send_to(self.node(node)).await
    }

    /// Kills a node outright; the balancer hears of it.
    pub(crate) async fn kill_node(&mut self, node: usize) {
        let node = self.nodes.remove(node);
        aside(move || node.kill()).await;
        self.balancer.send_to(self.addresses());
    }

    /// Takes a node out of the balancer, stops it gracefully and starts another build in its place.
    pub(crate) async fn replace_node(&mut self, number: usize, program: PathBuf) {
        let mut others = self.addresses();
        others.remove(number);
        self.balancer.send_to(others);
        // Who was sent there a moment ago is let in first.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let old = self.nodes.remove(number);
        let (folder, database) = (self.folder.path().to_owned(), self.database.clone());
        let way = Way { program, ..self.way.clone() };
        let node = aside(move || {
            old.stop();
            Node::start(&folder, number + 1, &database, &way)
        });
        self.nodes.insert(number, node.await);
        self.balancer.send_to(self.addresses());
    }

    /// Its database, beside it.
    pub(crate) async fn store(&self) -> Store {
        Store::connect(&self.database).await.unwrap()
    }

    /// Stops all nodes gracefully, and starts others on what they have left.
    pub(crate) async fn restart(mut self, policy: Value) -> Gate {
        let old = std::mem::take(&mut self.nodes);
        aside(move || old.into_iter().for_each(Node::stop)).await;
        self.nodes = nodes(self.folder.path(), &policy, &self.database, &self.way).await;
        self.balancer.send_to(addresses(&self.nodes));
        self
    }

    /// The same; a fleet is on its database already.
    pub(crate) async fn restart_on(self, place: &TestDatabase) -> Gate {
        assert_eq!(place.address, self.database, "the fleet was started elsewhere");
        self.restart(json!({})).await
    }

    /// Stops it gracefully.
    pub(crate) async fn stop(mut self) -> (Upstream, tempfile::TempDir) {
        let old = std::mem::take(&mut self.nodes);
        aside(move || old.into_iter().for_each(Node::stop)).await;
        (self.upstream, self.folder)
    }
}

/// Starts all nodes at once, as a fleet is started.
async fn nodes(folder: &Path, policy: &Value, database: &str, way: &Way) -> Vec<Node> {
    std::fs::write(folder.join("policy.json"), policy.to_string()).unwrap();
    let (folder, database, way) = (folder.to_owned(), database.to_owned(), way.clone());
    aside(move || {
        std::thread::scope(|scope| {
            let start = |number| Node::start(&folder, number, &database, &way);
            let starting: Vec<_> = (1..=many()).map(|n| scope.spawn(move || start(n))).collect();
            starting.into_iter().map(|node| node.join().unwrap()).collect()
        })
    })
    .await
}

fn addresses(nodes: &[Node]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.address).collect()
}

/// Work that waits, away from the threads that the tests run on.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The configuration as a file. Times are whole seconds there, sizes whole MiB: both are rounded up.
fn written(config: &Config) -> String {
    let whole = |time: Duration| time.as_millis().div_ceil(1000) as u64;
    let providers = config.providers.iter();
    let providers: serde_json::Map<_, _> = providers
        .map(|(name, provider)| {
            assert!(provider.key.is_none() && provider.client_key.is_none(), "cannot be written");
            let url = provider.base_url.to_string();
            (name.clone(), json!({ "base_url": url, "api": provider.api }))
        })
        .collect();
    let servers = config.mcp.iter();
    let servers: serde_json::Map<_, _> = servers
        .map(|(name, server)| {
            assert!(server.headers.is_empty(), "cannot be written");
            let timeout = whole(server.timeout);
            (name.clone(), json!({ "url": server.url.to_string(), "timeout_seconds": timeout }))
        })
        .collect();
    let on_kill = if config.on_kill == OnKill::Message { "message" } else { "error" };
    let file = json!({
        "policy": "policy.json",
        "private_alerts": config.private_alerts,
        "behind_proxy": config.behind_proxy,
        "on_kill": on_kill,
        "max_in_flight": config.max_in_flight,
        "max_body_mib": config.max_body.div_ceil(1 << 20),
        "hold_seconds": whole(config.hold),
        "body_timeout_seconds": whole(config.body_timeout),
        "client_timeout_seconds": whole(config.client_timeout),
        "upstream_timeout_seconds": whole(config.upstream_timeout),
        "providers": providers,
        "mcp": { "servers": servers },
    });
    toml::to_string(&file).unwrap()
}
