//! Programs in other languages that call a service: rows, buckets and machines that a client library deletes.
//!
//! A program is only read for this where it names such a library. Elsewhere `delete` takes a key out of a map.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::super::name::Words;
use super::super::{http, remote, sql};
use super::Walk;
use super::code::{Bare, Language};

/// Libraries whose calls reach a service, as programs name them.
const CLIENTS: &[&str] = &[
    "boto3",
    "botocore",
    "pymongo",
    "motor",
    "redis",
    "psycopg",
    "psycopg2",
    "asyncpg",
    "sqlite3",
    "sqlalchemy",
    "pymysql",
    "MySQLdb",
    "mysql",
    "mysql2",
    "duckdb",
    "snowflake",
    "cassandra",
    "elasticsearch",
    "opensearchpy",
    "kafka",
    "kafkajs",
    "pika",
    "kubernetes",
    "docker",
    "google",
    "azure",
    "stripe",
    "Stripe",
    "twilio",
    "hvac",
    "minio",
    "github",
    "mongodb",
    "mongoose",
    "ioredis",
    "pg",
    "knex",
    "PrismaClient",
    "sequelize",
    "typeorm",
    "aws-sdk",
    "firebase-admin",
    "DBI",
    "PDO",
    "mysqli",
    "better-sqlite3",
    "requests",
    "httpx",
    "axios",
];

/// Beginnings of the names of libraries that come in many packages.
const FAMILIES: &[&str] = &["@aws-sdk/", "@google-cloud/", "@azure/", "@prisma/", "@octokit/"];

/// Libraries of which a bare `delete()` deletes something elsewhere.
const SINGLE: &[&str] = &[
    "boto3",
    "requests",
    "httpx",
    "axios",
    "pymongo",
    "mongodb",
    "mongoose",
    "google",
    "azure",
    "stripe",
    "Stripe",
    "kubernetes",
    "minio",
    "github",
    "docker",
];

/// Calls that are handed a statement.
const ASKS: &[&str] = &[
    "execute(",
    "executescript(",
    "executemany(",
    "query(",
    "exec(",
    "raw(",
    "run(",
    "unsafe(",
    "do(",
    "sql(",
    "executeQuery(",
    "executeUpdate(",
    "$executeRawUnsafe(",
    "exec_driver_sql(",
];

/// Calls of one program that are looked at.
const MAX_CALLS: usize = 32;

impl Walk<'_> {
    /// Adds what a program does to a service.
    pub(super) fn calls_clients(&mut self, language: Language, bare: &Bare) {
        self.sends_deletion(language, bare);
        self.ends_all_processes(language, bare);
        let named = |name: &&&str| bare.names(name);
        let Some(client) = CLIENTS.iter().find(named).copied().or_else(|| family(bare)) else {
            return;
        };
        self.states(bare);
        let single = SINGLE.iter().any(|name| bare.names(name)) || client.starts_with('@');
        for (call, at) in bare.methods().into_iter().take(MAX_CALLS) {
            let words = Words::of(call);
            let gone =
                words.ruins() || (single && matches!(call, "delete" | "drop" | "remove" | "prune"));
            if !gone {
                continue;
            }
            let given = bare.given(at).0.join(" ");
            let address = given.contains("://");
            if address && http::is_local(&given) {
                continue;
            }
            let what = if address { http::place(&given) } else { given };
            let reach = remote(&[call, &what]);
            let verb = format!("{client} {call}");
            self.effects.harm(HarmKind::Destroys, &verb, &what, reach, Recovery::Elsewhere);
        }
    }

    /// Statements that a program hands to a database.
    fn states(&mut self, bare: &Bare) {
        let scratch = |text: &&String| *text == ":memory:" || self.is_throwaway(text);
        if bare.strings.iter().any(|text| scratch(&text) && !text.contains(' ')) {
            return;
        }
        let found: Vec<_> = bare
            .calls(ASKS)
            .into_iter()
            .filter_map(|at| bare.given(at).0.first().and_then(|text| sql::of(text)))
            .collect();
        for effects in found {
            self.effects.absorb(effects);
        }
    }

    /// `fetch(url, {method: 'DELETE'})`.
    fn sends_deletion(&mut self, language: Language, bare: &Bare) {
        let method = bare.strings.iter().any(|text| text == "DELETE" || text == "delete")
            || bare.has(&["Net::HTTP::Delete"]);
        let address = bare.strings.iter().find(|text| text.starts_with("http"));
        let Some(address) = address.filter(|address| method && !http::is_local(address)) else {
            return;
        };
        if bare.has(super::code::FETCHES) {
            let place = http::place(address);
            let verb = format!("{language:?} DELETE");
            let reach = remote(&[&place]);
            self.effects.harm(HarmKind::Destroys, &verb, &place, reach, Recovery::Elsewhere);
        }
    }

    /// `os.kill(-1, 9)`: every process that it may end.
    fn ends_all_processes(&mut self, language: Language, bare: &Bare) {
        if bare.calls(&["kill("]).into_iter().any(|at| bare.text[at..].starts_with("-1")) {
            let verb = format!("{language:?} kill");
            self.stops(&verb, "-1", Reach::System, Recovery::None);
        }
    }
}

/// The beginning of a package that a program loads.
fn family(bare: &Bare) -> Option<&'static str> {
    let loads = |start: &&&str| bare.strings.iter().any(|text| text.starts_with(**start));
    FAMILIES.iter().find(loads).copied()
}
