//! The shared state in Redis or a compatible server: one server, Sentinel, or a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::Time;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, Script, Value};
use thiserror::Error;
use tokio::runtime::{Handle, Id};
use tokio::sync::Mutex;

use crate::lane::Unreachable;
use crate::packed;
use crate::record::Version;
use crate::wire::{Beat, Commit, Moved, Reply, Touched};

/// Timeout for an answer. After it, the policy's fail mode decides.
const ANSWER: Duration = Duration::from_millis(2000);
/// Timeout for a connection.
const CONNECT: Duration = Duration::from_millis(2000);
/// The hash of all nodes, with the time at which the lease of each ends.
pub(crate) const NODES: &str = "deadstop:nodes";
/// Scopes that one request looks up, at most.
const MOST_TOUCHED: usize = 10_000;
/// The channel on which nodes announce changes.
const CHANNEL: &str = "deadstop:changes";
/// Published there with every heartbeat, so that a node notices a dead connection.
const TICK: &[u8] = b".";
/// A node reconnects after so long without a message.
const SILENCE: Duration = Duration::from_secs(5);
/// The script's error for counters in a layout of a newer version. It comes before any write.
const NEWER: &str = "NEWER";
/// Seconds for which a first decision is kept.
const KEEP_WORDS: u64 = 24 * 3600;

/// An address that cannot be used.
#[derive(Debug, Error)]
#[error("not a valid Redis address: {why}")]
pub struct BadAddress {
    /// What is wrong with it.
    pub why: String,
}

/// The shared state in Redis.
pub struct Redis {
    topology: Topology,
    commit: Script,
    beat: Script,
    touched: Script,
    sessions: Script,
}

enum Topology {
    /// One server.
    One { client: Box<Client>, lines: Lines<MultiplexedConnection> },
    /// The master that Sentinel names.
    Sentinel { client: Box<Mutex<SentinelClient>>, lines: Lines<MultiplexedConnection> },
    /// A cluster.
    Cluster { client: Box<ClusterClient>, any: Vec<Client>, lines: Lines<ClusterConnection> },
}

/// A connection for each runtime, so that no request wakes another thread. They are dropped
/// together: what one of them noticed concerns all.
struct Lines<C>(parking_lot::Mutex<HashMap<Option<Id>, Line<C>>>);

/// The connection of one runtime. Requests that need it wait for one attempt to connect.
type Line<C> = Arc<Mutex<Option<C>>>;

impl<C> Lines<C> {
    fn new() -> Lines<C> {
        Lines(parking_lot::Mutex::new(HashMap::new()))
    }

    /// That of the runtime that asks.
    fn here(&self) -> Line<C> {
        let id = Handle::try_current().ok().map(|handle| handle.id());
        Arc::clone(self.0.lock().entry(id).or_insert_with(|| Arc::new(Mutex::new(None))))
    }

    fn drop_all(&self) {
        self.0.lock().clear();
    }
}

/// A connection of either kind.
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Redis {
    /// Opens an address: `redis://` or `rediss://` for one server; with `+sentinel` and the
    /// master's name as the path; or with `+cluster`. Several hosts are separated by commas.
    pub fn open(address: &str) -> Result<Redis, BadAddress> {
        let bad = |why: String| BadAddress { why };
        let wrong = |error: RedisError| bad(error.to_string());
        let (scheme, rest) = address
            .split_once("://")
            .ok_or_else(|| bad("it does not begin with redis:// or rediss://".to_owned()))?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !matches!(scheme, "redis" | "rediss") {
            return Err(bad(format!("{scheme}:// is not redis:// or rediss://")));
        }
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (format!("{login}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let each = |path: &str| -> Vec<String> {
            hosts.split(',').map(|host| format!("{scheme}://{login}{host}/{path}")).collect()
        };
        let topology = match kind {
            "" => {
                let client = Box::new(Client::open(address).map_err(wrong)?);
                Topology::One { client, lines: Lines::new() }
            }
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    let why = "name the master: redis+sentinel://host1,host2/master";
                    return Err(bad(why.to_owned()));
                }
                let first = Client::open(each(database)[0].as_str()).map_err(wrong)?;
                let mut info = SentinelNodeConnectionInfo::default().set_redis_connection_info(
                    first.get_connection_info().redis_settings().clone(),
                );
                if scheme == "rediss" {
                    info = info.set_tls_mode(redis::TlsMode::Secure);
                }
                // The sentinels are asked without the master's password.
                let plain: Vec<String> =
                    hosts.split(',').map(|host| format!("{scheme}://{host}/")).collect();
                let kind = SentinelServerType::Master;
                let client = SentinelClient::build(plain, master, Some(info), kind);
                let client = Box::new(Mutex::new(client.map_err(wrong)?));
                Topology::Sentinel { client, lines: Lines::new() }
            }
            "cluster" => {
                let hosts = each("");
                let any = hosts.iter().map(|host| Client::open(host.as_str()).map_err(wrong));
                let any = any.collect::<Result<_, _>>()?;
                let client = ClusterClient::builder(hosts)
                    .connection_timeout(CONNECT)
                    .response_timeout(ANSWER)
                    .retries(2)
                    .build()
                    .map_err(wrong)?;
                Topology::Cluster { client: Box::new(client), any, lines: Lines::new() }
            }
            other => return Err(bad(format!("+{other} is neither +sentinel nor +cluster"))),
        };
        let commit = Script::new(include_str!("commit.lua"));
        let beat = Script::new(include_str!("beat.lua"));
        let touched = Script::new(include_str!("touched.lua"));
        let sessions = Script::new(include_str!("sessions.lua"));
        Ok(Redis { topology, commit, beat, touched, sessions })
    }

    /// A connection. Requests share one attempt to connect. Each waits for it no longer than for an
    /// answer, or else requests would queue behind each other's timeouts.
    async fn connection(&self) -> Result<Connection, Unreachable> {
        let in_time = tokio::time::timeout(ANSWER, self.connecting()).await;
        in_time.unwrap_or_else(|_| Err(Unreachable::not_sent("no connection within 2 s")))
    }

    /// Boxed: a crate compiles the futures that it awaits, and these hold all of the library.
    fn connecting(&self) -> BoxFuture<'_, Result<Connection, Unreachable>> {
        Box::pin(self.connected())
    }

    async fn connected(&self) -> Result<Connection, Unreachable> {
        let not_sent = |error: RedisError| Unreachable::not_sent(error.to_string());
        match &self.topology {
            Topology::One { client, lines } => {
                let line = lines.here();
                let mut connection = line.lock().await;
                if let Some(conn) = &*connection {
                    return Ok(Connection::One(conn.clone()));
                }
                let conn = connect(client).await.map_err(not_sent)?;
                *connection = Some(conn.clone());
                Ok(Connection::One(conn))
            }
            Topology::Sentinel { client, lines } => {
                let line = lines.here();
                let mut connection = line.lock().await;
                if let Some(conn) = &*connection {
                    return Ok(Connection::One(conn.clone()));
                }
                let client = client.lock().await.async_get_client().await.map_err(not_sent)?;
                let conn = connect(&client).await.map_err(not_sent)?;
                *connection = Some(conn.clone());
                Ok(Connection::One(conn))
            }
            Topology::Cluster { client, lines, .. } => {
                let line = lines.here();
                let mut connection = line.lock().await;
                if let Some(conn) = &*connection {
                    return Ok(Connection::Cluster(conn.clone()));
                }
                let conn = tokio::time::timeout(CONNECT, client.get_async_connection()).await;
                let conn = conn
                    .map_err(|_| Unreachable::not_sent("no connection within 2 s"))?
                    .map_err(not_sent)?;
                *connection = Some(conn.clone());
                Ok(Connection::Cluster(conn))
            }
        }
    }

    /// Drops the connections, so that the next request reconnects.
    fn disconnect(&self) {
        match &self.topology {
            Topology::One { lines, .. } | Topology::Sentinel { lines, .. } => lines.drop_all(),
            Topology::Cluster { lines, .. } => lines.drop_all(),
        }
    }

    /// Classifies an error: whether the request may have been carried out.
    fn classify(&self, error: &RedisError) -> Unreachable {
        self.disconnect();
        let refused = matches!(error.kind(), ErrorKind::Server(_))
            || error.is_connection_refusal()
            || error.code() == Some(NEWER);
        // The library retries on a cluster, so the first attempt may have been applied. A script
        // that failed may have been applied in part.
        let once = !matches!(self.topology, Topology::Cluster { .. });
        let broke = error.code() == Some("ERR");
        if refused && once && !broke {
            Unreachable::not_sent(error.to_string())
        } else {
            Unreachable::maybe_done(error.to_string())
        }
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        invocation: &redis::ScriptInvocation<'_>,
    ) -> Result<T, Unreachable> {
        let answered = match self.connection().await? {
            Connection::One(mut conn) => {
                tokio::time::timeout(ANSWER, invocation.invoke_async(&mut conn)).await
            }
            Connection::Cluster(mut conn) => {
                tokio::time::timeout(ANSWER, invocation.invoke_async(&mut conn)).await
            }
        };
        self.answer(answered)
    }

    /// The answer, if it arrived in time.
    fn answer<T>(&self, answered: Answered<T>) -> Result<T, Unreachable> {
        match answered {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.classify(&error)),
            Err(_) => {
                // A server that vanished would never answer on this connection: reconnect.
                self.disconnect();
                Err(Unreachable::maybe_done("no answer within 2 s"))
            }
        }
    }

    /// Applies one commit.
    pub async fn commit(&self, commit: &Commit) -> Result<Reply, Unreachable> {
        let mut script = self.commit.prepare_invoke();
        for item in &commit.items {
            script.key(&item.key);
        }
        for sum in &commit.sums {
            script.key(&sum.key);
        }
        script.key(Commit::epoch_key(&commit.tag)).key(Commit::index(&commit.tag));
        script.arg(commit.items.len()).arg(commit.sums.len());
        for item in &commit.items {
            match &item.write {
                Some(write) => {
                    script.arg(format!("{}{}", hex(item.expect), write.keep_ms));
                    let mut value = Vec::with_capacity(16 + write.value.len());
                    value.extend_from_slice(hex(write.version).as_bytes());
                    value.extend_from_slice(&write.value);
                    script.arg(value);
                }
                None => {
                    script.arg(hex(item.expect));
                }
            }
        }
        for sum in &commit.sums {
            script.arg(packed::pack(sum));
        }
        script.arg(match commit.era.as_deref() {
            None => "",
            Some("") => "unknown",
            Some(known) => known,
        });
        for scope in &commit.touched {
            script.arg(scope);
        }
        let value: Value = self.invoke(&script).await?;
        read(value).ok_or_else(|| {
            Unreachable::maybe_done(
                "its answer cannot be read; is it a Redis or Valkey of a supported version?",
            )
        })
    }

    /// The scopes under a tag that were used since a time.
    pub async fn touched(&self, tag: &str, since: Time) -> Result<Touched, Unreachable> {
        let mut script = self.touched.prepare_invoke();
        script.key(Commit::index(tag)).arg(since.0).arg(MOST_TOUCHED);
        let (now, found): (u64, Vec<(String, f64)>) = self.invoke(&script).await?;
        let scopes = found.into_iter().map(|(scope, at)| (scope, Time(at as u64))).collect();
        Ok(Touched { now: Time(now), scopes })
    }

    /// Asks the index of conversations; `fill` adds keys and arguments.
    pub(crate) async fn ask_index(
        &self,
        fill: impl FnOnce(&mut redis::ScriptInvocation<'_>),
    ) -> Result<Vec<String>, Unreachable> {
        let mut script = self.sessions.prepare_invoke();
        fill(&mut script);
        self.invoke(&script).await
    }

    /// Renews the lease of a node for `ms` milliseconds.
    pub async fn beat(&self, node: &str, ms: u64) -> Result<Beat, Unreachable> {
        let mut script = self.beat.prepare_invoke();
        script.key(NODES).arg(node).arg(ms).arg(CHANNEL).arg(TICK);
        let (now, nodes): (u64, Vec<(String, u64)>) = self.invoke(&script).await?;
        let nodes = nodes.into_iter().map(|(node, until)| (node, Time(until))).collect();
        Ok(Beat { now: Time(now), nodes })
    }

    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, Unreachable> {
        let answered = match self.connection().await? {
            Connection::One(mut conn) => {
                tokio::time::timeout(ANSWER, command.query_async(&mut conn)).await
            }
            Connection::Cluster(mut conn) => {
                tokio::time::timeout(ANSWER, command.query_async(&mut conn)).await
            }
        };
        self.answer(answered)
    }

    /// Asks one server; in a cluster, any of them.
    pub(crate) async fn ask_one<T: FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, Unreachable> {
        let Topology::Cluster { any, .. } = &self.topology else {
            return self.query(command).await;
        };
        let mut last = Unreachable::not_sent("no node of the cluster answers");
        for client in any {
            match connect(client).await {
                Ok(mut conn) => {
                    let said = command.query_async(&mut conn).await;
                    return said.map_err(|error| Unreachable::not_sent(error.to_string()));
                }
                Err(error) => last = Unreachable::not_sent(error.to_string()),
            }
        }
        Err(last)
    }

    /// Publishes a message to all nodes. Returns how many listen, as far as the server that was
    /// asked knows.
    pub async fn tell(&self, message: &[u8]) -> Result<u64, Unreachable> {
        self.query(redis::cmd("PUBLISH").arg(CHANNEL).arg(message)).await
    }

    /// Confirms that this node has applied a message.
    pub async fn take_in(&self, number: i64) -> Result<(), Unreachable> {
        let key = format!("deadstop:taken:{number}");
        let () = self.query(redis::cmd("INCR").arg(&key)).await?;
        self.query(redis::cmd("EXPIRE").arg(&key).arg(60)).await
    }

    /// How many nodes have applied a message.
    pub async fn taken_in(&self, number: i64) -> Result<u64, Unreachable> {
        let key = format!("deadstop:taken:{number}");
        let count: Option<u64> = self.query(redis::cmd("GET").arg(&key)).await?;
        Ok(count.unwrap_or(0))
    }

    /// Proposes a decision that is made once. Returns the decision that was proposed first.
    pub async fn first_word(&self, about: &str, word: &[u8]) -> Result<Vec<u8>, Unreachable> {
        let mut say = redis::cmd("SET");
        say.arg(word_key(about)).arg(word).arg("NX").arg("EX").arg(KEEP_WORDS);
        let first: Option<String> = self.query(&say).await?;
        match first {
            Some(_) => Ok(word.to_vec()),
            None => Ok(self.word_about(about).await?.unwrap_or_else(|| word.to_vec())),
        }
    }

    /// The decision that was proposed first, if there is one.
    pub async fn word_about(&self, about: &str) -> Result<Option<Vec<u8>>, Unreachable> {
        self.query(redis::cmd("GET").arg(word_key(about))).await
    }

    /// Receives the messages of other nodes until the connection breaks. Messages may be lost, so a
    /// receiver also reads the state again at intervals.
    pub async fn hear(&self, mut told: impl FnMut(&[u8])) -> Result<(), Unreachable> {
        let not_sent = |error: RedisError| Unreachable::not_sent(error.to_string());
        let client = match &self.topology {
            Topology::One { client, .. } => Client::clone(client),
            Topology::Sentinel { client, .. } => {
                client.lock().await.async_get_client().await.map_err(not_sent)?
            }
            Topology::Cluster { any, .. } => {
                let mut found = None;
                for client in any {
                    if connect(client).await.is_ok() {
                        found = Some(client.clone());
                        break;
                    }
                }
                found.ok_or_else(|| Unreachable::not_sent("no node of the cluster answers"))?
            }
        };
        let connecting = tokio::time::timeout(CONNECT, client.get_async_pubsub()).await;
        let mut pubsub = connecting
            .map_err(|_| Unreachable::not_sent("no connection within 2 s"))?
            .map_err(not_sent)?;
        pubsub.subscribe(CHANNEL).await.map_err(not_sent)?;
        // Messages may have been missed before the subscription: an empty message says so.
        told(b"");
        let mut messages = pubsub.on_message();
        // Every node publishes with each heartbeat. A connection can be broken without being
        // closed, so after a silence the node reconnects.
        while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
            match message.get_payload_bytes() {
                TICK => {}
                message => told(message),
            }
        }
        Err(Unreachable::not_sent("the connection for messages between nodes broke"))
    }
}

/// An answer, or a timeout.
type Answered<T> = Result<Result<T, RedisError>, tokio::time::error::Elapsed>;

async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(ANSWER));
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn word_key(about: &str) -> String {
    format!("deadstop:word:{about}")
}

fn hex(version: Version) -> String {
    format!("{:016x}", version.0)
}

fn read(value: Value) -> Option<Reply> {
    type Raw = (u8, u64, Vec<Value>, Vec<Vec<u8>>, String);
    let (done, now, moved, sums, era): Raw = redis::from_redis_value(value).ok()?;
    let mut moved = moved.into_iter();
    let mut others = Vec::new();
    while let (Some(item), Some(value)) = (moved.next(), moved.next()) {
        let item: usize = redis::from_redis_value(item).ok()?;
        let bytes: Vec<u8> = redis::from_redis_value(value).ok()?;
        others.push(match bytes.split_at_checked(16) {
            Some((version, value)) => {
                let version = u64::from_str_radix(std::str::from_utf8(version).ok()?, 16).ok()?;
                Moved { item, version: Version(version), value: value.to_vec() }
            }
            None => Moved { item, version: Version::default(), value: Vec::new() },
        });
    }
    let sums = sums.iter().map(|bytes| packed::unpack(bytes)).collect::<Option<_>>()?;
    Some(Reply { now: Time(now), done: done == 1, moved: others, sums, era: era.into() })
}
