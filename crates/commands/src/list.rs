//! Lists: filters, pages, and one way to go through them for people and for programs.
//!
//! A page is shown when it has come, so that a list of any length takes no more memory than a page.

use std::process::ExitCode;

use serde_json::Value;

use crate::client::{Client, encoded};
use crate::remote::Server;
use crate::table::Table;
use crate::ui::Hinted;
use crate::{ui, when};

/// The longest page that a server gives.
const PAGE: u64 = 1000;

/// Entries that are shown unless more or fewer are wanted.
const USUAL: u64 = 50;

/// How much of a list.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub(crate) struct Paging {
    /// Show at most this many [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Show all
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Paging {
    /// So many, or all.
    pub(crate) fn most(&self) -> Option<u64> {
        (!self.all).then_some(self.limit.unwrap_or(USUAL))
    }
}

/// Fails where filters of a list stand before a command about one thing: the filters would have no
/// effect, and the user expects one.
pub(crate) fn unfiltered<L: Default + PartialEq>(list: &L) -> anyhow::Result<()> {
    if *list == L::default() {
        return Ok(());
    }
    let problem = "filters are for lists, and this is a command about one thing";
    Err(Hinted::error(problem, "leave them out, or write them after the command if it has them"))
}

/// Which span of time.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub(crate) struct Span {
    /// Only since then: 30m, 2d (ago), 2026-11-15, 2026-11-15T09:30
    #[arg(long, value_name = "TIME", value_parser = when::moment)]
    since: Option<u64>,
    /// Only before then
    #[arg(long, value_name = "TIME", value_parser = when::moment)]
    until: Option<u64>,
}

impl Span {
    /// Adds it to the parameters.
    pub(crate) fn ask(&self, query: Query) -> Query {
        query.some("from", self.since).some("to", self.until)
    }
}

/// A path with parameters.
#[derive(Debug, Clone)]
pub(crate) struct Query(String);

impl Query {
    /// A path without parameters.
    pub(crate) fn new(path: impl Into<String>) -> Query {
        Query(path.into())
    }

    /// Adds a parameter, if it has a value.
    pub(crate) fn some(mut self, name: &str, value: Option<impl ToString>) -> Query {
        if let Some(value) = value {
            self.0.push(if self.0.contains('?') { '&' } else { '?' });
            self.0 += &format!("{name}={}", encoded(&value.to_string()));
        }
        self
    }

    /// The path as it is asked for.
    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

/// Goes through a list, page by page.
pub(crate) struct Pages<'c> {
    client: &'c Client,
    query: Query,
    left: Option<u64>,
    cursor: Option<String>,
    over: bool,
}

impl<'c> Pages<'c> {
    /// From the start of a list, at most so many entries.
    pub(crate) fn new(client: &'c Client, query: Query, most: Option<u64>) -> Pages<'c> {
        Pages { client, query, left: most, cursor: None, over: false }
    }

    /// The next page; `None` at the end.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        if self.over {
            return Ok(None);
        }
        let limit = self.left.unwrap_or(PAGE).min(PAGE);
        let query =
            self.query.clone().some("limit", Some(limit)).some("cursor", self.cursor.take());
        let mut answer = self.client.get(query.path()).await?;
        let items = items(&mut answer)?;
        self.cursor = answer["next"].as_str().map(str::to_owned);
        self.left = self.left.map(|left| left.saturating_sub(items.len() as u64));
        self.over = self.cursor.is_none() || self.left == Some(0) || items.is_empty();
        Ok(Some(items))
    }

    /// Whether there is more than was wanted.
    pub(crate) fn has_more(&self) -> bool {
        self.cursor.is_some()
    }

    /// All pages as one.
    pub(crate) async fn collect(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        while let Some(items) = self.next().await? {
            all.extend(items);
        }
        Ok(all)
    }
}

/// What is on a page.
fn items(answer: &mut Value) -> anyhow::Result<Vec<Value>> {
    match answer["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Err(Hinted::error(
            "another program answers at this address, not Deadstop",
            "check --server",
        )),
    }
}

/// Shows a list: a table a page, or a line of JSON an entry.
pub(crate) fn show(
    server: &Server,
    query: Query,
    paging: &Paging,
    what: &str,
    table: impl Fn(&[Value]) -> Table,
) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    ui::runtime()?.block_on(async {
        let mut pages = Pages::new(&client, query, paging.most());
        let mut seen = 0;
        while let Some(items) = pages.next().await? {
            seen += items.len();
            write(server, &items, &table)?;
        }
        if seen == 0 {
            eprintln!("no {what}");
        } else if pages.has_more() {
            eprintln!("Showing {seen}. Use --limit or --all.");
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Shows a list in an order of its own. It is read whole before its beginning is shown.
pub(crate) fn show_sorted<K: Ord>(
    server: &Server,
    query: Query,
    paging: &Paging,
    what: &str,
    key: impl Fn(&Value) -> K,
    table: impl Fn(&[Value]) -> Table,
) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let mut items = ui::runtime()?.block_on(Pages::new(&client, query, None).collect())?;
    items.sort_by_cached_key(key);
    let most = paging.most().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let more = items.len() > most;
    items.truncate(most);
    if items.is_empty() {
        eprintln!("no {what}");
    }
    write(server, &items, &table)?;
    if more {
        eprintln!("Showing {most}. Use --limit or --all.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a list that always comes whole.
pub(crate) fn show_whole(
    server: &Server,
    path: &str,
    what: &str,
    table: impl Fn(&[Value]) -> Table,
) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let mut answer = ui::runtime()?.block_on(client.get(path))?;
    let items = items(&mut answer)?;
    if items.is_empty() {
        eprintln!("no {what}");
    }
    write(server, &items, &table)?;
    Ok(ExitCode::SUCCESS)
}

fn write(
    server: &Server,
    items: &[Value],
    table: impl Fn(&[Value]) -> Table,
) -> anyhow::Result<()> {
    match (server.json, items.is_empty()) {
        (_, true) => Ok(()),
        (true, _) => ui::print(&items.iter().map(|item| format!("{item}\n")).collect::<String>()),
        (false, _) => ui::print(&table(items).to_string()),
    }
}
