//! The index of unnamed conversations in Redis, shared by all nodes: which session a request belongs
//! to. Every question is one script call.
//!
//! The index is bounded as in memory: each map has two generations of a fixed number of entries, for
//! each project. After a day without use it expires.

use deadstop_core::{Digest, Time};

use crate::cell::tag;
use crate::lane::Unreachable;
use crate::redis::Redis;

/// How long the index is kept after its last use.
const KEEP_MS: u64 = 24 * 3600 * 1000;
/// The maps of the index, in the order of the script's keys.
const MAPS: [&str; 4] = ["answers", "requests", "callers", "owners"];

/// The bounds of the index.
#[derive(Debug, Clone, Copy)]
pub struct IndexLimits {
    /// Entries of one generation of a map.
    pub generation: usize,
    /// Sessions that one entry holds, at most.
    pub twins: usize,
    /// Single prompts in a row that make a batch.
    pub batch: u32,
    /// Longest pause between two prompts of a batch.
    pub pause_ms: u64,
    /// After so long without a request, a caller has none in flight.
    pub lost_ms: u64,
}

/// A request to look up; see `Keys` in the protocol crate.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The caller.
    pub caller: Digest,
    /// The request.
    pub request: Digest,
    /// The answers that it repeats, the last one first.
    pub answers: &'a [Digest],
    /// Whether it says that it is another attempt.
    pub again: bool,
    /// The number of a new session, if it needs one.
    pub fresh: u64,
    /// The current time.
    pub now: Time,
}

/// How a request was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// It starts a conversation.
    New,
    /// It goes on with one.
    Continued,
    /// It is another attempt.
    Again,
    /// It is one of many single prompts.
    Single,
}

/// The index of one project.
pub struct Index<'r> {
    redis: &'r Redis,
    keys: [String; 8],
    limits: IndexLimits,
}

impl<'r> Index<'r> {
    /// The index of a project.
    pub fn new(redis: &'r Redis, project: &str, limits: IndexLimits) -> Index<'r> {
        let tag = tag(project);
        let keys = std::array::from_fn(|at| {
            let age = if at % 2 == 0 { "new" } else { "old" };
            format!("deadstop:{{{tag}}}:index:{}:{age}", MAPS[at / 2])
        });
        Index { redis, keys, limits }
    }

    /// The session of a request, and how it was recognised.
    pub async fn find(&self, lookup: Lookup<'_>) -> Result<(u64, Recognised), Unreachable> {
        let Lookup { caller, request, answers, again, fresh, now } = lookup;
        let mut arguments =
            vec![hex(caller.0), hex(request.0), u8::from(again).to_string(), hex(fresh)];
        arguments.push(now.0.to_string());
        arguments.extend(answers.iter().map(|key| hex(key.0)));
        let said = self.ask("find", &arguments).await?;
        let known = match said.get(1).map(String::as_str) {
            Some("new") => Recognised::New,
            Some("continued") => Recognised::Continued,
            Some("again") => Recognised::Again,
            Some("single") => Recognised::Single,
            _ => return Err(unreadable()),
        };
        Ok((number(&said)?.ok_or_else(unreadable)?, known))
    }

    /// The request was answered; `answer` are the keys of the answer.
    pub async fn answered(
        &self,
        caller: Digest,
        session: u64,
        answer: &[Digest],
        now: Time,
    ) -> Result<(), Unreachable> {
        let mut arguments = vec![hex(caller.0), hex(session), now.0.to_string()];
        arguments.extend(answer.iter().map(|key| hex(key.0)));
        self.ask("answered", &arguments).await.map(drop)
    }

    /// The request was not answered.
    pub async fn failed(
        &self,
        caller: Digest,
        request: Digest,
        session: u64,
        now: Time,
    ) -> Result<(), Unreachable> {
        let arguments = [hex(caller.0), hex(request.0), hex(session), now.0.to_string()];
        self.ask("failed", &arguments).await.map(drop)
    }

    /// The session that an answer was given in, by its key.
    pub async fn of_answer(&self, key: Digest) -> Result<Option<u64>, Unreachable> {
        number(&self.ask("answer", &[hex(key.0)]).await?)
    }

    /// The credential that a session's name belongs to: this one, if no other has used it before.
    pub async fn owner(&self, key: Digest, credential: Digest) -> Result<Digest, Unreachable> {
        let said = self.ask("owner", &[hex(key.0), hex(credential.0)]).await?;
        Ok(Digest(number(&said)?.ok_or_else(unreadable)?))
    }

    async fn ask(&self, what: &str, arguments: &[String]) -> Result<Vec<String>, Unreachable> {
        let IndexLimits { generation, twins, batch, pause_ms, lost_ms } = self.limits;
        self.redis
            .ask_index(|script| {
                for key in &self.keys {
                    script.key(key);
                }
                script.arg(generation).arg(twins).arg(batch).arg(pause_ms).arg(lost_ms);
                script.arg(KEEP_MS).arg(what).arg(arguments);
            })
            .await
    }
}

/// The first number of an answer; dashes mean none.
fn number(said: &[String]) -> Result<Option<u64>, Unreachable> {
    let first = said.first().ok_or_else(unreadable)?;
    if first.starts_with('-') {
        return Ok(None);
    }
    u64::from_str_radix(first, 16).map(Some).map_err(|_| unreadable())
}

fn unreadable() -> Unreachable {
    Unreachable::maybe_done("the answer of the index of conversations cannot be read")
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}
