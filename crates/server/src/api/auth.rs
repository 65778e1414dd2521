//! Who is asking, and whether they may.
//!
//! While a server has no key, every process of its machine may look, make calls and tighten control.
//! Orders that loosen control take the operator's token (`crate::operator`). From the first key on,
//! keys are required: in `authorization: Bearer` or `x-deadstop-key`, or as a login's cookie. A
//! request by cookie that changes something must also carry the login's token.
//!
//! Every route passes [`guard`] before its handler, which looks the route up in one table
//! ([`access::ROUTES`]) and hands the handler a [`Who`].

mod access;
mod bound;
pub(crate) mod grace;
pub(crate) mod key;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use deadstop_core::Millis;
use deadstop_protocol::llm::identity;
use deadstop_store::{AuditEvent, Store, StoreError, StoredKey, StoredLogin};
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use access::{Need, ROUTES};
pub(crate) use bound::Bound;
use grace::Grace;
pub(crate) use key::{NewKey, NoRandomness};

use super::App;
use super::problem::{Code, Problem};
use crate::database::Notice;
use crate::net::Only;
use crate::operator::{OPERATOR_HEADER, Operators};
use deadstop_warden::now;
use key::BroughtKey;

/// The header that carries a key where `authorization` is the provider's.
pub(crate) const KEY_HEADER: &str = "x-deadstop-key";
/// The header by which the local user names a project.
pub(crate) const PROJECT_HEADER: &str = "x-deadstop-project";
/// The header that proves that a change was meant.
const CSRF_HEADER: &str = "x-csrf-token";
/// A login's cookie.
const COOKIE: &str = "deadstop_login";
pub(crate) use deadstop_warden::DEFAULT_PROJECT;
/// How long a login lasts.
const LOGIN: Millis = Millis::from_secs(12 * 60 * 60);
/// A key's last use is noted at most so often.
const TOUCHED: Millis = Millis::from_secs(60);
/// How long a key that was looked up is believed. Revoking on this server forgets it at once; this
/// is for what others write into the same database.
const BELIEVED: Duration = Duration::from_secs(2);
/// The same for "there is no key", where a database elsewhere cannot tell us that there is one now.
const BELIEVED_OPEN: Duration = Duration::from_millis(250);
/// How long to wait for the store before a cached key is used a little longer.
const SOON: Duration = Duration::from_millis(100);
/// Keys that are remembered; more than a server has.
const MOST_REMEMBERED: usize = 10_000;

/// What a key may do, from least to most.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Reads `/metrics`, and nothing else.
    Metrics,
    /// Calls, and its own session.
    Agent,
    /// Sees everything of its project.
    Viewer,
    /// Stops, holds and lets go; sets guards.
    Operator,
    /// Keys, projects, alerts and settings.
    Admin,
}

impl Role {
    /// The name used in the API and in the store.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Agent => "agent",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// The letter in a key, for people who have several.
    fn letter(self) -> char {
        match self {
            Role::Metrics => 'm',
            Role::Agent => 'g',
            Role::Viewer => 'v',
            Role::Operator => 'o',
            Role::Admin => 'a',
        }
    }
}

impl From<deadstop_store::Role> for Role {
    fn from(role: deadstop_store::Role) -> Role {
        match role {
            deadstop_store::Role::Metrics => Role::Metrics,
            deadstop_store::Role::Agent => Role::Agent,
            deadstop_store::Role::Viewer => Role::Viewer,
            deadstop_store::Role::Operator => Role::Operator,
            deadstop_store::Role::Admin => Role::Admin,
        }
    }
}

impl From<Role> for deadstop_store::Role {
    fn from(role: Role) -> deadstop_store::Role {
        match role {
            Role::Metrics => deadstop_store::Role::Metrics,
            Role::Agent => deadstop_store::Role::Agent,
            Role::Viewer => deadstop_store::Role::Viewer,
            Role::Operator => deadstop_store::Role::Operator,
            Role::Admin => deadstop_store::Role::Admin,
        }
    }
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// The project that they belong to; they see nothing else.
    pub(crate) project: String,
    /// What they may do.
    pub(crate) role: Role,
    /// What people call them.
    pub(crate) name: String,
    /// The only agent that they may be, or a pattern for it, if they are bound.
    pub(crate) agent: Option<String>,
    /// How the caller was authenticated.
    pub(crate) via: Via,
}

/// A person that an OpenID provider vouches for.
pub(crate) struct Person {
    /// Made of the provider and its name for the person; of the same person always the same.
    pub(crate) id: String,
    pub(crate) project: String,
    /// What people call them.
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// How the caller was authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Via {
    /// By being on this machine, while there are no keys.
    Local(Standing),
    /// By a key.
    Key {
        /// Its id.
        id: String,
    },
    /// By a login with a key.
    Login {
        /// The key's id.
        id: String,
        /// The token that changes must bring.
        csrf: String,
    },
}

/// How far a process of this machine is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has shown nothing: it may be an agent. It looks, makes calls and tightens control.
    Unproven,
    /// It has shown the operator's token.
    Operator,
    /// A browser that the operator has signed in, and the token that its changes must bring.
    SignedIn(String),
    /// The server has keys since a moment ago, and an agent that was running has none yet.
    Grace,
}

impl Who {
    /// Whether orders that loosen control are taken from them, if their role is enough.
    pub(crate) fn may_loosen(&self) -> bool {
        !self.is_unproven() && self.role >= Role::Operator
    }

    /// Fails where an order loosens control and a process that may be an agent gives it.
    pub(crate) fn must_loosen(&self) -> Result<(), Problem> {
        if self.is_unproven() {
            return Err(Problem::new(Code::OperatorRequired, OPERATOR_REQUIRED));
        }
        Ok(())
    }

    fn is_unproven(&self) -> bool {
        matches!(self.via, Via::Local(Standing::Unproven | Standing::Grace))
    }

    /// What a browser's changes must bring.
    pub(crate) fn csrf(&self) -> Option<&str> {
        match &self.via {
            Via::Login { csrf, .. } | Via::Local(Standing::SignedIn(csrf)) => Some(csrf),
            _ => None,
        }
    }

    /// The id of the key, if there is one.
    pub(crate) fn key(&self) -> Option<&str> {
        match &self.via {
            Via::Local(_) => None,
            Via::Key { id } | Via::Login { id, .. } => Some(id),
        }
    }

    /// Fails if the caller's key is bound to other agents.
    pub(crate) fn may_see(&self, agent: &str) -> Result<(), Problem> {
        match Bound::of(self.agent.as_deref()).admits(agent) {
            true => Ok(()),
            false => Err(Problem::not_found("agent")),
        }
    }

    /// Who it was, for the record: the key's name, and the person that a client names.
    pub(crate) fn signed(&self, by: Option<&str>) -> String {
        let by = by.and_then(identity::name);
        match (&self.via, by) {
            (Via::Local(_), Some(by)) => by,
            (_, Some(by)) if by != self.name => format!("{} ({by})", self.name),
            _ => self.name.clone(),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Who, Problem> {
        let who = parts.extensions.get::<Who>().cloned();
        who.ok_or_else(|| {
            Problem::new(Code::Internal, "this route was reached without authentication")
        })
    }
}

/// The address that a request comes from, set where the connection was accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Knows keys, logins and the operator.
pub(crate) struct Auth {
    store: Option<Store>,
    operators: Operators,
    /// The one run of a private gateway, which has one project, too.
    only: Option<Only>,
    keys: RwLock<HashMap<String, (StoredKey, Instant)>>,
    logins: RwLock<HashMap<String, (StoredLogin, Instant)>>,
    /// Whether there is any key, and when that was looked up. Once there is one it stays so.
    keyed: RwLock<Option<(bool, Instant)>>,
    /// Whether there was no key at the last look.
    opened: AtomicBool,
    /// Agents that were running when the first key was made.
    pub(crate) grace: Grace,
    /// Changes when a key is made in the database of this folder without the server.
    notice: Option<Notice>,
}

/// What a server is told about who may do what.
pub(crate) struct Setup {
    pub(crate) store: Option<Store>,
    pub(crate) operators: Operators,
    pub(crate) only: Option<Only>,
    pub(crate) grace: Duration,
    pub(crate) notice: Option<Notice>,
}

impl Auth {
    /// Looks keys up in the store. A server that keeps nothing has no keys.
    pub(crate) fn new(setup: Setup) -> Auth {
        Auth {
            store: setup.store,
            operators: setup.operators,
            only: setup.only,
            grace: Grace::new(setup.grace),
            notice: setup.notice,
            keys: RwLock::default(),
            logins: RwLock::default(),
            keyed: RwLock::new(None),
            opened: AtomicBool::new(false),
        }
    }

    /// Whether this process has served without keys until the last look.
    fn was_open(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// The one run of a private gateway.
    pub(crate) fn only(&self) -> Option<&Only> {
        self.only.as_ref()
    }

    /// Whether this server has keys, so that callers must bring one. A server that once had one
    /// does not open again when the last is revoked.
    pub(crate) async fn keyed(&self) -> Result<bool, Problem> {
        let known = *self.keyed.read();
        let believed = if self.notice.is_some() { BELIEVED } else { BELIEVED_OPEN };
        // Without a key, one that is made elsewhere must count at once.
        let unnoticed = || !self.notice.as_ref().is_some_and(Notice::changed);
        if let Some((keyed, at)) = known
            && (keyed || (at.elapsed() < believed && unnoticed()))
        {
            return Ok(keyed);
        }
        let Some(store) = &self.store else { return Ok(false) };
        match (look_up(store.count_keys(), known.is_some()).await, known) {
            (Ok(count), before) => {
                let open = before.is_some_and(|(keyed, _)| !keyed) || self.was_open();
                if count.ever > 0 && open {
                    self.grace.begin();
                }
                self.opened.store(count.ever == 0, Ordering::Release);
                *self.keyed.write() = Some((count.ever > 0, Instant::now()));
                Ok(count.ever > 0)
            }
            // While the database is away the last answer holds: operators can still give orders.
            (Err(_), Some((keyed, _))) => Ok(keyed),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Forgets what was looked up: a key was made or revoked.
    pub(crate) fn forget(&self) {
        self.keys.write().clear();
        self.logins.write().clear();
        *self.keyed.write() = None;
    }

    /// Who brings this key.
    pub(crate) async fn by_key(&self, text: &str) -> Result<Who, Problem> {
        let key = self.prove(text).await?;
        let via = Via::Key { id: key.id.clone() };
        Ok(who(key, via))
    }

    async fn prove(&self, text: &str) -> Result<StoredKey, Problem> {
        let brought = BroughtKey::parse(text.trim()).ok_or_else(bad_key)?;
        let key = self.key(brought.id).await?.ok_or_else(bad_key)?;
        if brought.proves(&key.digest) { Ok(key) } else { Err(bad_key()) }
    }

    /// A key that is in force.
    async fn key(&self, id: &str) -> Result<Option<StoredKey>, Problem> {
        let known = self.keys.read().get(id).cloned();
        if let Some((key, at)) = &known
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(key.clone()));
        }
        let Some(store) = &self.store else { return Ok(None) };
        match (look_up(store.key(id), known.is_some()).await, known) {
            (Ok(found), _) => {
                let found = found.filter(|key| key.revoked.is_none());
                remember(&self.keys, id, found.as_ref());
                if let Some(key) = &found {
                    self.touch(store, key);
                }
                Ok(found)
            }
            (Err(_), Some((key, _))) => Ok(Some(key)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Notes in the background that a key is in use; to the minute is enough.
    fn touch(&self, store: &Store, key: &StoredKey) {
        let now = now();
        if key.used.is_none_or(|used| now.since(used) >= TOUCHED) {
            let (store, id) = (store.clone(), key.id.clone());
            tokio::spawn(async move {
                if let Err(error) = store.touch_key(&id, now).await {
                    tracing::debug!("a key's last use could not be written: {error}");
                }
            });
        }
    }

    /// Opens a login with a key, or with a sign-in link where there are no keys. Gives the cookie's
    /// value and who it is.
    pub(crate) async fn log_in(
        &self,
        text: &str,
        event: impl FnOnce(&Who) -> AuditEvent,
    ) -> Result<(String, Who), Problem> {
        if !self.keyed().await? {
            let cookie = self.operators.sign_in(text);
            if let Some((cookie, csrf)) = cookie
                .and_then(|cookie| self.operators.by_cookie(&cookie).map(|csrf| (cookie, csrf)))
            {
                return Ok((cookie, self.local(None, Standing::SignedIn(csrf))));
            }
        }
        if Operators::is_sign_in(text) {
            return Err(Problem::new(Code::BadKey, LINK_OVER));
        }
        let key = self.prove(text).await?;
        if key.role == deadstop_store::Role::Metrics {
            let detail =
                "a key for metrics is for a scraper, and opens no page; sign in with another";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let Some(store) = &self.store else { return Err(bad_key()) };
        self.open(store, key, event).await
    }

    /// Opens a login with a key that was proved.
    async fn open(
        &self,
        store: &Store,
        key: StoredKey,
        event: impl FnOnce(&Who) -> AuditEvent,
    ) -> Result<(String, Who), Problem> {
        let secret = key::secret().map_err(no_randomness)?;
        let now = now();
        let login = StoredLogin {
            id: key::digest(&secret),
            project: key.project.clone(),
            key: key.id.clone(),
            csrf: key::derived("csrf", &secret),
            made: now,
            used: now,
            expires: now + LOGIN,
        };
        let who = who(key, Via::Login { id: login.key.clone(), csrf: login.csrf.clone() });
        store.create_login(&login, Some(&event(&who))).await?;
        Ok((secret, who))
    }

    /// Opens a login for a person that an OpenID provider has vouched for. `None` if an admin has
    /// revoked the person. What the person may do is kept like a key that has no text: it is listed
    /// with the keys, and revoking it ends all logins.
    pub(crate) async fn log_in_person(
        &self,
        person: Person,
        event: impl FnOnce(&Who) -> AuditEvent,
    ) -> Result<Option<String>, Problem> {
        let Some(store) = &self.store else { return Err(bad_key()) };
        let unknown = key::secret().map_err(no_randomness)?;
        let kept = StoredKey {
            id: person.id,
            project: person.project,
            role: person.role.into(),
            agent: None,
            name: person.name,
            digest: key::hash(&unknown),
            made: now(),
            made_by: StoredKey::SIGN_ON.to_owned(),
            used: Some(now()),
            revoked: None,
            revoked_by: None,
        };
        if !store.put_person(&kept).await? {
            return Ok(None);
        }
        self.keys.write().remove(&kept.id);
        self.open(store, kept, event).await.map(|(secret, _)| Some(secret))
    }

    /// Ends the login of these headers, if there is one.
    pub(crate) async fn log_out(
        &self,
        headers: &HeaderMap,
        event: &AuditEvent,
    ) -> Result<(), Problem> {
        if let (Some(store), Some(secret)) = (&self.store, cookie(headers)) {
            let id = key::digest(secret);
            store.end_login(&id, Some(event)).await?;
            self.logins.write().remove(&id);
        }
        Ok(())
    }

    async fn by_login(&self, secret: &str) -> Result<Who, Problem> {
        let id = key::digest(secret);
        let login = self.login(&id).await?.filter(|login| login.expires > now());
        let login = login.ok_or_else(login_over)?;
        let key = self.key(&login.key).await?.ok_or_else(login_over)?;
        let via = Via::Login { id: key.id.clone(), csrf: login.csrf };
        Ok(who(key, via))
    }

    async fn login(&self, id: &str) -> Result<Option<StoredLogin>, Problem> {
        let known = self.logins.read().get(id).cloned();
        if let Some((login, at)) = &known
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(login.clone()));
        }
        let Some(store) = &self.store else { return Ok(None) };
        match (look_up(store.login(id, now()), known.is_some()).await, known) {
            (Ok(found), _) => {
                remember(&self.logins, id, found.as_ref());
                Ok(found)
            }
            (Err(_), Some((login, _))) => Ok(Some(login)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Who sends these headers from there.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Who, Problem> {
        let named = headers.get(PROJECT_HEADER).map(|value| {
            let text = value.to_str().ok().and_then(identity::name);
            text.ok_or_else(|| Problem::not_found("project"))
        });
        let named = named.transpose()?.filter(|_| self.only.is_none());
        let login = cookie(headers).filter(|secret| !Operators::is_cookie(secret));
        let found = if let Some(text) = brought(headers)? {
            self.by_key(text).await?
        } else if let Some(secret) = login {
            self.by_login(secret).await?
        } else if !self.keyed().await? && peer.is_some_and(|Peer(at)| at.ip().is_loopback()) {
            self.local(named.clone(), self.standing(headers))
        } else if self.grace.is_on() && peer.is_some_and(|Peer(at)| at.ip().is_loopback()) {
            let name = "agent without a key".to_owned();
            Who { role: Role::Agent, name, ..self.local(named.clone(), Standing::Grace) }
        } else {
            let detail = KEY_REQUIRED;
            return Err(Problem::new(Code::KeyRequired, detail));
        };
        match named {
            Some(named) if named != found.project => Err(Problem::not_found("project")),
            _ => Ok(found),
        }
    }

    /// A process of this machine, while there are no keys.
    fn local(&self, project: Option<String>, standing: Standing) -> Who {
        Who {
            project: project.unwrap_or_else(|| DEFAULT_PROJECT.to_owned()),
            role: Role::Admin,
            name: "local user".to_owned(),
            agent: None,
            via: Via::Local(standing),
        }
    }

    /// What a process of this machine has shown.
    fn standing(&self, headers: &HeaderMap) -> Standing {
        let token = headers.get(OPERATOR_HEADER).and_then(|value| value.to_str().ok());
        if self.operators.everybody() || token.is_some_and(|text| self.operators.is_token(text)) {
            return Standing::Operator;
        }
        let csrf = cookie(headers).and_then(|cookie| self.operators.by_cookie(cookie));
        csrf.map_or(Standing::Unproven, Standing::SignedIn)
    }
}

/// What a caller without a key is told.
const KEY_REQUIRED: &str = "this server wants a key: send `x-deadstop-key: ds_…` or `authorization: \
    Bearer ds_…`";

/// What a process is told that may be an agent.
const OPERATOR_REQUIRED: &str = "this order loosens control, and every process of this machine \
    could give it, so it takes the operator's token: run `deadstop` in a terminal, or open the link \
    that `deadstop sign-in` prints";

/// What a browser is told that brings a link once more.
const LINK_OVER: &str = "this sign-in link was used or is too old, or the server has keys now; \
    `deadstop sign-in` prints another link";

/// Asks the store. With a cached answer (`known`) it waits only [`SOON`].
async fn look_up<T>(
    asking: impl Future<Output = Result<T, StoreError>>,
    known: bool,
) -> Result<T, StoreError> {
    if !known {
        return asking.await;
    }
    tokio::time::timeout(SOON, asking).await.unwrap_or_else(|_| Err(StoreError::late()))
}

fn who(key: StoredKey, via: Via) -> Who {
    let StoredKey { project, role, name, agent, .. } = key;
    Who { project, role: role.into(), name, agent, via }
}

/// Caches what was looked up. A key that the store no longer has leaves the cache as well.
fn remember<T: Clone>(known: &RwLock<HashMap<String, (T, Instant)>>, id: &str, found: Option<&T>) {
    let mut known = known.write();
    let Some(found) = found else {
        known.remove(id);
        return;
    };
    if known.len() >= MOST_REMEMBERED {
        known.clear();
    }
    known.insert(id.to_owned(), (found.clone(), Instant::now()));
}

fn bad_key() -> Problem {
    Problem::new(Code::BadKey, "the key is unknown, wrong or revoked; ask an admin for another")
}

fn login_over() -> Problem {
    Problem::new(Code::BadKey, "the login has expired; log in again")
}

pub(crate) fn no_randomness(error: NoRandomness) -> Problem {
    Problem::new(Code::Internal, error.to_string())
}

/// The key in the headers.
fn brought(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let unreadable = |_| bad_key();
    if let Some(value) = headers.get(KEY_HEADER) {
        return value.to_str().map(Some).map_err(unreadable);
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(unreadable)?;
    let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(key)) } else { Err(bad_key()) }
}

/// The secret in the login's cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, COOKIE)
}

/// The value of a cookie.
pub(crate) fn cookie_of<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|p| p.split_once('='));
    pairs.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
}

/// A cookie that a script cannot read and another site cannot send.
pub(crate) fn set_cookie(secret: &str, headers: &HeaderMap) -> String {
    let secure = if is_https(headers) { "; Secure" } else { "" };
    let seconds = LOGIN.0 / 1000;
    format!("{COOKIE}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether the browser speaks HTTPS, to the proxy in front.
pub(crate) fn is_https(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|value| value == "https")
}

/// Takes the cookie away again.
pub(crate) fn end_cookie() -> String {
    format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict")
}

/// Passes a request to its handler if the caller is allowed to send it.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match admitted(&app, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Orders to all of a project, or to something in it.
const ORDERS: [&str; 5] = ["/api/kill", "/api/clear", "/api/reset", "/api/pause", "/api/resume"];

/// What clients report calls with.
const REPORTS: [&str; 5] = ["/preflight", "/proposal", "/progress", "/receipt", "/api/sessions"];

/// Fails unless an agent that was running before the first key reports its own calls.
async fn in_grace(app: &App, path: &str, need: Need) -> Result<(), Problem> {
    let agent = path.strip_prefix("/api/sessions/").and_then(|rest| rest.split('/').next());
    let agent = agent.map(|agent| percent_decode_str(agent).decode_utf8_lossy().into_owned());
    // To open a session names its agent in the body; its handler looks.
    let known = match &agent {
        Some(agent) => app.auth.grace.admits(&app.warden, agent).await,
        None => path == "/api/sessions",
    };
    if known && need.met_by(Role::Agent) {
        return Ok(());
    }
    Err(Problem::new(Code::KeyRequired, KEY_REQUIRED))
}

async fn admitted(app: &App, mut request: Request) -> Result<Request, Problem> {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let need = path.and_then(|path| access::need(request.method(), path));
    let need = match need {
        Some(Need::Nothing) => return Ok(request),
        Some(need) => need,
        None if path.is_some() => {
            let detail = "this route exists, but not with this method";
            return Err(Problem::new(Code::MethodNotAllowed, detail));
        }
        None => return Err(Problem::not_found("route")),
    };
    let peer = request.extensions().get::<Peer>().copied();
    let who = app.auth.identify(request.headers(), peer).await?;
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if who.via == Via::Local(Standing::Grace) {
        in_grace(app, request.uri().path(), need).await?;
    }
    if let (Some(csrf), false) = (who.csrf(), safe) {
        let token = request.headers().get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        if !token.is_some_and(|token| key::same(token, csrf)) {
            let detail = "send the login's token as `x-csrf-token`; /api/whoami tells it";
            return Err(Problem::new(Code::BadCsrfToken, detail));
        }
    }
    if !need.met_by(who.role) {
        let roles: Vec<_> = need.roles().into_iter().map(Role::name).collect();
        let (roles, own) = (roles.join(" or "), who.role.name());
        let detail = format!("this takes the role {roles}, and the key's is {own}");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let open = safe || path.is_some_and(|path| access::is_open(request.method(), path, need));
    if !open {
        who.must_loosen()?;
    }
    // Without keys the caller names the project, and its first call creates it. Reading does not
    // create it. An order to a project that does not exist must fail visibly.
    let order = path.is_some_and(|path| ORDERS.contains(&path));
    let looks = safe || order;
    if matches!(who.via, Via::Local(_)) && looks && !app.warden.knows_project(&who.project).await? {
        let detail = format!("there is no project `{}`; its first call creates it", who.project);
        return Err(Problem::new(Code::NotFound, detail));
    }
    // Reported calls catch up by themselves, and only with their own chain.
    if !path.is_some_and(|path| REPORTS.iter().any(|report| path.ends_with(report))) {
        app.warden.catch_up(&who.project).await;
    }
    request.extensions_mut().insert(who);
    Ok(request)
}
