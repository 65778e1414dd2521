//! What handlers take out of a request, checked once at the edge.
//!
//! Bodies are strict: of a bounded size, JSON, every field known and every required one there. The
//! answer to a bad one names all of its faults at once. Parameters of the URL likewise.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use deadstop_core::{GuardId, Time};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_views::{FieldFault, KillSwitch, PreventionConfig};
use deadstop_redact::Redactor;
use deadstop_store::{Paging, Period};
use deadstop_warden::trace::Trace;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, ToSchema};

use super::check::Checker;
use super::problem::{Code, Problem};

/// Largest body of the control API; a full policy has a few kilobytes.
const MAX_BODY: usize = 1 << 20;
/// Entries on a page, unless asked for more or fewer.
pub(crate) const PAGE: u32 = 50;

/// A body type whose every field is checked.
pub(crate) trait Strict: DeserializeOwned + ToSchema + 'static {
    /// Reads it, or says everything that is wrong with it.
    fn read(value: &Value) -> Result<Self, Vec<FieldFault>> {
        let faults = Checker::of::<Self>().faults(value);
        if !faults.is_empty() {
            return Err(faults);
        }
        Self::deserialize(value).map_err(|error| vec![FieldFault::invalid("", error.to_string())])
    }
}

impl Strict for KillSwitch {
    fn read(value: &Value) -> Result<Self, Vec<FieldFault>> {
        KillSwitch::read(value)
    }
}

impl Strict for PreventionConfig {
    fn read(value: &Value) -> Result<Self, Vec<FieldFault>> {
        PreventionConfig::read(value)
    }
}

/// A strict JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: Strict, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Problem> {
        let Raw(value) = Raw::from_request(request, state).await?;
        T::read(&value).map(Body).map_err(|faults| Problem::fields(Code::InvalidBody, faults))
    }
}

/// A JSON body that the handler reads itself, such as a whole policy.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Value);

impl<S: Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Raw, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let detail = "send JSON, with `content-type: application/json`";
            return Err(Problem::new(Code::WrongContentType, detail));
        }
        let collected = Limited::new(request.into_body(), MAX_BODY).collect().await;
        let bytes = match collected {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
                let detail = format!("a body may have at most {MAX_BODY} bytes");
                return Err(Problem::new(Code::TooLarge, detail));
            }
            Err(_) => return Err(Problem::new(Code::BadRequest, "the body broke off")),
        };
        let read: Result<Unique, _> = serde_json::from_slice(&bytes);
        let bad = |error: serde_json::Error| {
            // The message may name a duplicate field.
            let error = Redactor::default().redact(&error.to_string()).into_owned();
            Problem::new(Code::BadJson, format!("the body is not JSON: {error}"))
        };
        read.map(|Unique(value)| Raw(value)).map_err(bad)
    }
}

/// JSON without duplicate names: a client that sends two values for one setting could not know
/// which of them counts.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Unique(value))) = entries.next_entry::<String, Unique>()? {
            if map.contains_key(&name) {
                return Err(de::Error::custom(format!("`{name}` stands there twice")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// Parameters of the URL, every one known and of its type.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

/// The same for a route that has some of its own besides the usual ones.
#[derive(Debug)]
pub(crate) struct AskedBoth<A, B>(pub(crate) A, pub(crate) B);

impl<T, S> FromRequestParts<S> for Asked<T>
where
    T: IntoParams + DeserializeOwned,
    S: Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked<T>, Problem> {
        let value = asked(&parts.uri, &T::into_params(|| Some(ParameterIn::Query)))?;
        read_asked(&value).map(Asked)
    }
}

impl<A, B, S> FromRequestParts<S> for AskedBoth<A, B>
where
    A: IntoParams + DeserializeOwned,
    B: IntoParams + DeserializeOwned,
    S: Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<AskedBoth<A, B>, Problem> {
        let mut known = A::into_params(|| Some(ParameterIn::Query));
        known.extend(B::into_params(|| Some(ParameterIn::Query)));
        let value = asked(&parts.uri, &known)?;
        Ok(AskedBoth(read_asked(&value)?, read_asked(&value)?))
    }
}

fn read_asked<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    T::deserialize(value).map_err(|error| {
        let fault = FieldFault::invalid("", error.to_string());
        Problem::fields(Code::InvalidQuery, vec![fault])
    })
}

/// Texts from a URL as what their schemas say they are; complains about all that are not.
fn asked(uri: &Uri, known: &[Parameter]) -> Result<Value, Problem> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| Problem::new(Code::BadRequest, error.body_text()))?;
    let (mut value, mut faults) = (Map::new(), Vec::new());
    for (name, text) in pairs {
        let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
            faults.push(FieldFault::unknown(name));
            continue;
        };
        if value.contains_key(&name) {
            faults.push(FieldFault::invalid(name, "stands there twice"));
            continue;
        }
        let Some(schema) = &parameter.schema else { continue };
        let checker = Checker::new(schema, &[]);
        let types = checker.types();
        let read = if types.contains(&"integer") {
            text.parse::<i64>().map(Value::from).unwrap_or(Value::String(text))
        } else if types.contains(&"boolean") {
            text.parse::<bool>().map(Value::from).unwrap_or(Value::String(text))
        } else {
            Value::String(text)
        };
        faults.extend(checker.faults_at(&read, &name));
        value.insert(name, read);
    }
    let missing = known.iter().filter(|parameter| parameter.required == Required::True);
    let missing = missing.filter(|parameter| !value.contains_key(&parameter.name));
    faults.extend(missing.map(|parameter| FieldFault::missing(&parameter.name)));
    if faults.is_empty() {
        Ok(Value::Object(value))
    } else {
        Err(Problem::fields(Code::InvalidQuery, faults))
    }
}

/// Which part of a list: the filters that every list has.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Entries on a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub(crate) limit: Option<u32>,
    /// Where to go on: `next` of the page before.
    #[param(max_length = 100)]
    pub(crate) cursor: Option<String>,
    /// Only this agent's.
    #[param(max_length = 200)]
    pub(crate) agent: Option<String>,
    /// Only this session's.
    #[param(max_length = 200)]
    pub(crate) session: Option<String>,
    /// Only what this guard did.
    #[param(max_length = 50)]
    pub(crate) guard: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    pub(crate) from: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    pub(crate) to: Option<u64>,
}

impl Filter {
    /// Which page.
    pub(crate) fn paging(&self) -> Paging {
        Paging { limit: self.limit.unwrap_or(PAGE), cursor: self.cursor.clone() }
    }

    /// Which span of time.
    pub(crate) fn period(&self) -> Period {
        Period { from: self.from.map(Time), to: self.to.map(Time) }
    }

    /// Which guard.
    pub(crate) fn guard(&self) -> Result<Option<GuardId>, Problem> {
        let Some(guard) = &self.guard else { return Ok(None) };
        GuardId::deserialize(Value::from(guard.as_str())).map(Some).map_err(|_| {
            let fault = FieldFault::invalid("guard", "is not the name of a guard");
            Problem::fields(Code::InvalidQuery, vec![fault])
        })
    }
}

/// Which of the sessions of one name.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Numbered {
    /// The session's number. Without it, the session of that name that was opened last.
    #[param(max_length = 20)]
    number: Option<String>,
}

impl Numbered {
    /// The number.
    pub(crate) fn number(&self) -> Result<Option<i64>, Problem> {
        number(self.number.as_deref())
    }
}

/// A session's number, as text in a URL: it is too large for a number of JavaScript's.
pub(crate) fn number(text: Option<&str>) -> Result<Option<i64>, Problem> {
    text.map(str::parse).transpose().map_err(|_| {
        let fault = FieldFault::invalid("number", "is not the number of a session");
        Problem::fields(Code::InvalidQuery, vec![fault])
    })
}

/// Which page of a list that has no filters.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paged {
    /// Entries on a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// Where to go on: `next` of the page before.
    #[param(max_length = 200)]
    cursor: Option<String>,
}

impl Paged {
    /// Which page.
    pub(crate) fn paging(&self) -> Paging {
        Paging { limit: self.limit.unwrap_or(PAGE), cursor: self.cursor.clone() }
    }
}

/// A span of time.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Span {
    /// Not before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    to: Option<u64>,
}

impl Span {
    /// Which span.
    pub(crate) fn period(&self) -> Period {
        Period { from: self.from.map(Time), to: self.to.map(Time) }
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T: ToSchema> {
    /// What is on it.
    pub(crate) items: Vec<T>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

impl<T: ToSchema> Page<T> {
    /// A page of the store as it is shown.
    pub(crate) fn of<S>(page: deadstop_store::Page<S>, show: impl FnMut(S) -> T) -> Page<T> {
        Page { items: page.items.into_iter().map(show).collect(), next: page.next }
    }

    /// All there is.
    pub(crate) fn all(items: Vec<T>) -> Page<T> {
        Page { items, next: None }
    }
}

/// A name or names in the path. A text that cannot be a name is not found.
#[derive(Debug)]
pub(crate) struct At<T>(pub(crate) T);

/// A name in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

/// Whether names in a body are valid. A scope's key is made of them, and a name with control
/// characters could pass for another scope's.
pub(crate) fn names<'n>(
    field: &str,
    names: impl IntoIterator<Item = &'n String>,
) -> Result<(), Problem> {
    let bad = |name: &&String| identity::name(name).as_ref() != Some(*name);
    if names.into_iter().find(bad).is_none() {
        return Ok(());
    }
    let fault = FieldFault::invalid(field, "this cannot be a name");
    Err(Problem::fields(Code::InvalidBody, vec![fault]))
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        let text = String::deserialize(deserializer)?;
        match identity::name(&text) {
            Some(name) if name == text => Ok(Name(name)),
            _ => Err(de::Error::custom("this cannot be a name")),
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<At<T>, Problem> {
        let found: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        found.map(|Path(value)| At(value)).map_err(|_| Problem::not_found("thing"))
    }
}

/// The trace that the caller works in, if it names one.
pub(crate) struct InTrace(pub(crate) Option<Arc<Trace>>);

impl<S: Sync> FromRequestParts<S> for InTrace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<InTrace, Infallible> {
        Ok(InTrace(crate::door::trace(&parts.headers)))
    }
}

/// Which version a change replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// The header is not there.
    Unsaid,
    /// Whichever there is.
    Any,
    /// This one.
    Version(i64),
    /// One that cannot be ours.
    Foreign,
}

impl IfMatch {
    /// The version that must be in force; `None` for any.
    pub(crate) fn expected(self, needed: Needed) -> Result<Option<i64>, Problem> {
        match (self, needed) {
            (IfMatch::Version(version), _) => Ok(Some(version)),
            (IfMatch::Any, _) | (IfMatch::Unsaid, Needed::No) => Ok(None),
            (IfMatch::Unsaid, Needed::Yes) => {
                let detail = "say which version this replaces: send its ETag as `if-match`";
                Err(Problem::new(Code::IfMatchRequired, detail))
            }
            (IfMatch::Foreign, _) => Err(stale()),
        }
    }
}

/// Whether a change must say what it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needed {
    /// It must.
    Yes,
    /// It may: the examples on the seed pages do not.
    No,
}

/// Another client changed the resource since this client read it.
pub(crate) fn stale() -> Problem {
    let detail = "it was changed since you read it; read it again, and send its new ETag";
    Problem::new(Code::VersionMismatch, detail)
}

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfMatch, Problem> {
        Ok(if_match(&parts.headers))
    }
}

fn if_match(headers: &HeaderMap) -> IfMatch {
    let Some(value) = headers.get(header::IF_MATCH) else { return IfMatch::Unsaid };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return IfMatch::Any;
    }
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = quoted.unwrap_or(text).parse();
    version.map_or(IfMatch::Foreign, IfMatch::Version)
}

/// The version of what is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ETag(pub(crate) i64);

impl IntoResponseParts for ETag {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        if let Ok(value) = HeaderValue::from_str(&format!("\"{}\"", self.0)) {
            parts.headers_mut().insert(header::ETAG, value);
        }
        Ok(parts)
    }
}

impl IntoResponse for ETag {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

#[cfg(test)]
mod tests;
