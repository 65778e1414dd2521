//! Refusals and mistakes as the other side reads them.

use deadstop_sdk::{Limits, Refused, Status};
use serde::Serialize;
use serde_json::json;

/// A mistake of the caller.
pub(crate) fn mistake(text: impl ToString) -> napi::Error {
    napi::Error::new(napi::Status::InvalidArg, text.to_string())
}

/// A refusal, as JSON.
pub(crate) fn refusal(refused: &Refused) -> String {
    json!({ "killed": refused.is_killed(), "message": refused.to_string(), "why": refused.why() })
        .to_string()
}

pub(crate) fn plain(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

pub(crate) fn limits(text: &str) -> napi::Result<Limits> {
    serde_json::from_str(text).map_err(mistake)
}

pub(crate) fn status(number: u32) -> Status {
    match number {
        0 => Status::Ok,
        1 => Status::Error,
        2 => Status::Fault,
        _ => Status::Cancelled,
    }
}
