//! A server with a scripted upstream behind every provider.

use std::net::SocketAddr;

use deadstop_server::{Config, Secret, Server};
use deadstop_store::Store;
use serde_json::{Value, json};

use crate::place::TestDatabase;
use crate::support::both::config;
use crate::support::{Reply, Seen, Upstream};

/// One server.
pub(crate) const NODES: usize = 1;

/// The gateway between both ends.
pub(crate) struct Gate {
    server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) folder: tempfile::TempDir,
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
        let upstream = Upstream::start(answer).await;
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(upstream.address, policy);
        config.data = Some(folder.path().to_owned());
        change(&mut config);
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, upstream, folder }
    }

    /// Starts one on a database of its own.
    pub(crate) async fn on(
        place: &TestDatabase,
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        let database = Secret::new(place.address.clone());
        Gate::with(policy, answer, |config| {
            config.database = Some(database);
            change(config);
        })
        .await
    }

    /// Where its nodes listen: there is one.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    /// Its database, beside it.
    pub(crate) async fn store(&self) -> Store {
        Store::open(&self.folder.path().join("deadstop.db")).await.unwrap()
    }

    /// Stops it gracefully, and starts another one on what it has left.
    pub(crate) async fn restart(self, policy: Value) -> Gate {
        self.restart_with(policy, |_| {}).await
    }

    /// The same with a changed configuration.
    pub(crate) async fn restart_with(
        self,
        policy: Value,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        self.server.stop().await;
        let mut config = config(self.upstream.address, policy);
        config.data = Some(self.folder.path().to_owned());
        change(&mut config);
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, ..self }
    }

    /// The same on a database of its own.
    pub(crate) async fn restart_on(self, place: &TestDatabase) -> Gate {
        self.server.stop().await;
        let mut config = config(self.upstream.address, json!({}));
        config.database = Some(Secret::new(place.address.clone()));
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, ..self }
    }

    /// Stops it gracefully.
    pub(crate) async fn stop(self) -> (Upstream, tempfile::TempDir) {
        self.server.stop().await;
        (self.upstream, self.folder)
    }
}
