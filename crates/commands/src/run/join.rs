//! Which server a run joins when the command line names none: the one of the environment, or one that
//! this user runs at the usual address.
//!
//! Whatever says how a gateway of one's own should be (a policy, a configuration, a base URL) asks for
//! one. At the usual address any user of the machine may listen, and the command's API keys go there:
//! only a server of this user or of root is joined.

use std::time::Duration;

use super::environment;
use crate::client::Client;
use crate::remote;
use crate::ui::Hinted;

/// How long a server on this machine may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a run should do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// A server that was named: it must answer.
    Named(String),
    /// A server at the usual address, which answers.
    Found(String),
    /// A gateway of its own, and what the user should know about that.
    Own(Option<String>),
}

/// What follows from the command line and the environment alone.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Named(String),
    Usual,
    Own,
}

/// Decides; `settings` says whether the command line has settings of a gateway.
pub(super) async fn decide(settings: Settings, get: impl Fn(&str) -> Option<String>) -> Join {
    match wish(settings, get) {
        Wish::Named(url) => Join::Named(url),
        Wish::Own => Join::Own(None),
        Wish::Usual => usual().await,
    }
}

/// Whether the command line has settings of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settings {
    Typed,
    Untyped,
}

fn wish(settings: Settings, get: impl Fn(&str) -> Option<String>) -> Wish {
    let filled = |name: &str| get(name).filter(|value| !value.trim().is_empty());
    if settings == Settings::Typed {
        return Wish::Own;
    }
    match filled("DEADSTOP_SERVER") {
        Some(server) if server.trim() == "none" => return Wish::Own,
        Some(server) => return Wish::Named(server.trim().to_owned()),
        None => {}
    }
    let own = ["DEADSTOP_POLICY", "DEADSTOP_CONFIG"].iter().any(|name| filled(name).is_some());
    if own || environment::sends_elsewhere(get) { Wish::Own } else { Wish::Usual }
}

/// Looks at the usual address.
async fn usual() -> Join {
    let port = remote::USUAL.rsplit(':').next().and_then(|port| port.parse().ok());
    if !port.is_some_and(is_ours) {
        return Join::Own(None);
    }
    let Ok(client) = Client::new(remote::USUAL) else { return Join::Own(None) };
    match tokio::time::timeout(PATIENCE, client.get("/api/whoami")).await {
        Ok(Ok(_)) => Join::Found(remote::USUAL.to_owned()),
        // Another program at the usual address is no concern of a run.
        Ok(Err(error)) if Hinted::is_away(&error) || Hinted::is_foreign(&error) => Join::Own(None),
        Ok(Err(error)) => Join::Own(Some(format!(
            "the server at {} does not take this run ({error}), so it has a gateway of its own; \
             DEADSTOP_SERVER={} and a key join it",
            remote::USUAL,
            remote::USUAL,
        ))),
        Err(_) => Join::Own(None),
    }
}

/// Whether this user, or root, listens on a port of this machine. False where that cannot be told.
fn is_ours(port: u16) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let owners: Vec<u32> =
        tables.iter().flatten().flat_map(|table| listeners(table, port)).collect();
    !owners.is_empty() && owners.iter().all(|owner| [0, me].contains(owner))
}

/// The users who listen on a port, by a table of Linux: `sl local_address rem_address st … uid`.
fn listeners(table: &str, port: u16) -> Vec<u32> {
    const LISTEN: &str = "0A";
    let row = |line: &str| -> Option<u32> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, at) = fields.get(1)?.rsplit_once(':')?;
        let here = u16::from_str_radix(at, 16).ok()? == port && *fields.get(3)? == LISTEN;
        here.then(|| fields.get(7)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_gateway_ask_for_one() {
        let check = |settings, variables: &[(&str, &str)], expected| {
            let get = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(wish(settings, get), expected, "{settings:?} {variables:?}");
        };
        let named = |url: &str| Wish::Named(url.to_owned());
        check(Settings::Untyped, &[], Wish::Usual);
        check(Settings::Untyped, &[("DEADSTOP_SERVER", " ")], Wish::Usual);
        check(Settings::Untyped, &[("DEADSTOP_SERVER", "none")], Wish::Own);
        check(Settings::Untyped, &[("DEADSTOP_SERVER", "http://x")], named("http://x"));
        check(Settings::Typed, &[("DEADSTOP_SERVER", "http://x")], Wish::Own);
        check(Settings::Untyped, &[("DEADSTOP_POLICY", "strict")], Wish::Own);
        check(Settings::Untyped, &[("OPENAI_BASE_URL", "http://mine/v1")], Wish::Own);
        check(Settings::Untyped, &[("OPENAI_API_KEY", "k")], Wish::Usual);
    }

    #[test]
    fn listeners_are_read_from_the_table_of_linux() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:102D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n   \
             1: 0100007F:102D 0100007F:9999 01 00000000:00000000 00:00000000 00000000    33        0 2 1\n   \
             2: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1\n";
        assert_eq!(listeners(table, 4141), [1000]);
        assert_eq!(listeners(table, 8080), [0]);
        assert!(listeners(table, 80).is_empty() && listeners("", 80).is_empty());
    }
}
