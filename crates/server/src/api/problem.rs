//! Errors as problem+json (RFC 9457), each with a code that stays the same.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_redact::Redactor;
use deadstop_store::StoreError;
use serde::Serialize;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Declares the codes with their statuses and meanings.
macro_rules! codes {
    ($( $(#[doc = $doc:literal])* $name:ident = $status:literal $code:literal, )*) => {
        /// Every code that an error can have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub(crate) enum Code {
            $( $(#[doc = $doc])* #[serde(rename = $code)] $name, )*
        }

        impl Code {
            /// All of them, for the document.
            pub(crate) const ALL: &[Code] = &[$( Code::$name, )*];

            /// The code as it is sent.
            pub(crate) fn name(self) -> &'static str {
                match self { $( Code::$name => $code, )* }
            }

            /// The status that it is sent with.
            pub(crate) fn status(self) -> StatusCode {
                let status = match self { $( Code::$name => $status, )* };
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// What it means.
            pub(crate) fn meaning(self) -> &'static str {
                match self { $( Code::$name => concat!($( $doc, )*), )* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    BadJson = 400 "bad_json",
    /// A header or a path cannot be read.
    BadRequest = 400 "bad_request",
    /// This server wants a key, and none came.
    KeyRequired = 401 "key_required",
    /// The key is unknown, wrong or revoked, or the login is over.
    BadKey = 401 "bad_key",
    /// The key's role may not do this.
    Forbidden = 403 "forbidden",
    /// The order loosens control and takes the operator's token.
    OperatorRequired = 403 "operator_required",
    /// A login must bring its `x-csrf-token`.
    BadCsrfToken = 403 "bad_csrf_token",
    /// There is no such thing, or it is not yours to see.
    NotFound = 404 "not_found",
    /// No agent of that name was heard of; `"new": true` gives the order in advance.
    NoAgent = 404 "no_agent",
    /// No session in use has that name.
    NoSession = 404 "no_session",
    /// The route exists, but not with this method.
    MethodNotAllowed = 405 "method_not_allowed",
    /// A session's end is final.
    SessionFinal = 409 "session_final",
    /// It was killed, and a hold is not what stops it.
    ScopeKilled = 409 "scope_killed",
    /// It was decided already, or waits no longer.
    AlreadyDecided = 409 "already_decided",
    /// A scope holds as many grants as it can.
    TooManyGrants = 409 "too_many_grants",
    /// The agent has calls in flight and cannot be removed yet.
    CallsInFlight = 409 "calls_in_flight",
    /// The name is taken.
    NameTaken = 409 "name_taken",
    /// The first key of a server must be an admin's.
    FirstKeyAdmin = 409 "first_key_admin",
    /// The last admin's key cannot be revoked.
    LastAdminKey = 409 "last_admin_key",
    /// It was changed since the client read it.
    VersionMismatch = 412 "version_mismatch",
    /// The body is too large.
    TooLarge = 413 "too_large",
    /// The body must be `application/json`.
    WrongContentType = 415 "wrong_content_type",
    /// Fields of the body are unknown, missing or wrong; `errors` names them.
    InvalidBody = 422 "invalid_body",
    /// Parameters of the URL are unknown or wrong; `errors` names them.
    InvalidQuery = 422 "invalid_query",
    /// The order does not say what it is about.
    BadOrder = 422 "bad_order",
    /// The person was not shown all of the call that they approve.
    NotShown = 422 "not_shown",
    /// A change of a policy must say which version it replaces.
    IfMatchRequired = 428 "if_match_required",
    /// It is in force, but could not be written yet.
    NotDurable = 503 "not_durable",
    /// The database does not answer.
    StoreFailed = 503 "store_failed",
    /// This server keeps nothing.
    NoStore = 503 "no_store",
    /// Something is wrong in the server.
    Internal = 500 "internal",
}

impl ToSchema for Code {}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let names = Code::ALL.iter().map(|code| code.name());
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

/// An error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldFault>,
}

/// An error as it is sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Always `about:blank`: the code tells more.
    r#type: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// What went wrong, in a word that stays the same.
    code: Code,
    /// What went wrong, in words, and what to do about it.
    detail: String,
    /// The fields or parameters that are wrong, all of them.
    errors: Vec<FieldFault>,
}

impl Problem {
    /// What went wrong, in words.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// An error with its explanation.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem { code, detail: detail.into(), errors: Vec::new() }
    }

    /// Fields that are wrong. Errors end up in other people's logs, so a secret that a client sent
    /// as a field's name is not repeated. Each text is redacted by itself: a message about a field
    /// called `password` is no secret.
    pub(crate) fn fields(code: Code, mut errors: Vec<FieldFault>) -> Problem {
        let redactor = Redactor::default();
        for fault in &mut errors {
            for text in [&mut fault.field, &mut fault.detail] {
                if let Cow::Owned(rest) = redactor.redact(text) {
                    *text = rest;
                }
            }
        }
        let named: Vec<_> = errors
            .iter()
            .take(5)
            .map(|fault| match fault.field.as_str() {
                "" => fault.detail.clone(),
                field => format!("`{field}`: {}", fault.detail),
            })
            .collect();
        let more = errors.len().saturating_sub(named.len());
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        Problem { code, detail: format!("{}{more}", named.join("; ")), errors }
    }

    /// Something that is not there, or not this caller's to see.
    pub(crate) fn not_found(what: &str) -> Problem {
        Problem::new(Code::NotFound, format!("there is no such {what}"))
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match &error {
            StoreError::Conflict { .. } => {
                let detail =
                    "it was changed since you read it; read it again, and send its new ETag";
                Problem::new(Code::VersionMismatch, detail)
            }
            StoreError::Cursor => {
                let fault = FieldFault::invalid("cursor", "is not one of ours; start without it");
                Problem::fields(Code::InvalidQuery, vec![fault])
            }
            StoreError::Exists(_) => Problem::new(Code::NameTaken, error.to_string()),
            _ => match error.trouble() {
                Some(trouble) => {
                    tracing::warn!("{error}");
                    let detail = format!("the database does not answer ({})", trouble.name());
                    Problem::new(Code::StoreFailed, detail)
                }
                None => {
                    tracing::error!("{error}");
                    Problem::new(Code::Internal, "the server failed; its log says why")
                }
            },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = ProblemBody {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code: self.code,
            detail: self.detail,
            errors: self.errors,
        };
        let text = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (status, text).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_words_and_differ() {
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        for (code, name) in Code::ALL.iter().zip(&names) {
            assert_eq!(serde_json::to_value(code).unwrap(), *name);
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert!(code.status().as_u16() >= 400 && !code.meaning().is_empty(), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }

    /// Found by schemathesis: the document had the variants' names.
    #[test]
    fn the_document_lists_the_codes_as_they_are_sent() {
        let schema = serde_json::to_value(<Code as utoipa::PartialSchema>::schema()).unwrap();
        let names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(schema["enum"], serde_json::json!(names));
    }

    #[test]
    fn secrets_are_not_repeated() {
        let key = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
        let faults = vec![FieldFault::unknown(key), FieldFault::unknown("password")];
        let problem = Problem::fields(Code::InvalidBody, faults);
        let text = format!("{problem:?}");
        assert!(!text.contains("a1B2") && text.contains("`password`: unknown field"), "{text}");
    }

    #[test]
    fn many_faults_are_all_listed_and_shortly_told() {
        let faults: Vec<_> = (0..7).map(|n| FieldFault::unknown(format!("f{n}"))).collect();
        let problem = Problem::fields(Code::InvalidBody, faults);
        assert_eq!(problem.errors.len(), 7);
        assert!(problem.detail.ends_with("; and 2 more"), "{}", problem.detail);
    }
}
