//! Every kind of Redis that an address can name: with TLS, with sentinels, a cluster. Real ones.

use serde_json::json;

use crate::fleet::redis::{Redis, Way, free_port};
use crate::fleet::steps::{everywhere, hello, relaxed};
use crate::gate::aside;
use crate::place::TestDatabase;
use crate::support::{Gate, until};

async fn fleet(redis: Redis, way: Way) -> Gate {
    let database = TestDatabase::postgres().await.address;
    Gate::over(&database, (redis, way), relaxed(), hello, |_| {}).await
}

/// Agents are let through, killed on one node and refused on all.
async fn walk(gate: &Gate, agents: &[&str]) {
    for agent in agents {
        everywhere(gate, agent, 200).await;
        gate.order("kill", json!({ "agent": agent, "reason": "enough" })).await;
        everywhere(gate, agent, 403).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let options = format!(
        "--tls-port {port} --tls-auth-clients no --tls-cert-file {} --tls-key-file {} \
         --tls-ca-cert-file {0}",
        certificate.display(),
        key.display()
    );
    let redis = aside(move || Redis::with(&options.split(' ').collect::<Vec<_>>())).await;
    let address = format!("rediss://localhost:{port}/0");
    let gate = fleet(redis, Way { trusted: Some(certificate), ..Way::to(&address) }).await;
    walk(&gate, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let all = aside(Redis::cluster).await;
    let hosts: Vec<String> = all.iter().map(|redis| redis.place().to_string()).collect();
    let address = format!("redis+cluster://{}", hosts.join(","));
    let [redis, ..] = all.clone();
    let gate = fleet(redis, Way::to(&address)).await;
    walk(&gate, &["a", "b"]).await;
    // Everything of a project lies in one slot; what belongs to no project may lie elsewhere.
    let keys = |redis: &Redis| redis.tells("INFO keyspace").contains("db0:");
    let busy = aside(move || all.iter().filter(|redis| keys(redis)).count()).await;
    assert!((1..=3).contains(&busy), "{busy} of the cluster hold something");
}

/// The master dies, another takes over: the nodes find it by themselves, and it knows what was said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_have_another_take_over() {
    let (master, replica, sentinel) = aside(|| {
        let master = Redis::start();
        let replica = Redis::replica(&master);
        master.followed_by(&replica);
        let sentinel = Redis::sentinel(&master);
        (master, replica, sentinel)
    })
    .await;
    let address = format!("redis+sentinel://{}/deadstop/0", sentinel.place());
    let gate = fleet(master.clone(), Way::to(&address)).await;
    walk(&gate, &["a"]).await;
    let watched = sentinel.clone();
    until("the sentinel knows who follows", async || {
        let watched = watched.clone();
        aside(move || watched.tells("INFO sentinel").contains("slaves=1")).await
    })
    .await;
    aside(move || master.kill()).await;
    until("another takes over", async || {
        let replica = replica.clone();
        aside(move || replica.tells("INFO replication").contains("role:master")).await
    })
    .await;
    everywhere(&gate, "a", 403).await;
    walk(&gate, &["b"]).await;
}
