//! Steers: what the model is told, behind a tool's result or with the next request.
//!
//! Code that runs a tool gets the advice with the settled call and puts it behind the result. Where that
//! is not possible (the result is no text, the tool failed, or it ran unguarded), a guarded client puts
//! the advice into its next request, at the same place in every later one, as the gateway does.

use std::borrow::Cow;

use deadstop_core::{Trip, Verdict};

use crate::refused::Why;
use crate::scope::Scope;

/// How a call was settled.
///
/// ```
/// use deadstop_sdk::Session;
/// use serde_json::json;
///
/// let session = Session::builder("a").policy("balanced")?.open()?;
/// let mut told = String::new();
/// for _ in 0..3 {
///     let call = session.tool("get_build", &json!({ "id": 7 }))?;
///     told = call.failed("502 Bad Gateway")?.told("502 Bad Gateway").into_owned();
/// }
/// // The third time the model is told what repeats.
/// assert!(told.starts_with("502 Bad Gateway\n\n[Deadstop] "), "{told}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Settled {
    /// What the model should be told, if a guard steers it.
    pub advice: Option<String>,
    /// The call that a model's answer asked for: its scope, and the model's id for it.
    pub(crate) asked: Option<(Scope, String)>,
}

impl Settled {
    /// The advice as the model reads it, marked as Deadstop's.
    pub fn note(&self) -> Option<String> {
        self.advice.as_ref().map(|advice| format!("[Deadstop] {advice}"))
    }

    /// The tool's result as the model should read it: with the advice behind it, if there is any.
    pub fn told<'a>(&self, result: &'a str) -> Cow<'a, str> {
        match self.note() {
            Some(note) if result.is_empty() => Cow::Owned(note),
            Some(note) => Cow::Owned(format!("{result}\n\n{note}")),
            None => Cow::Borrowed(result),
        }
    }

    /// Leaves the advice to the guarded client whose model asked for this call: it puts the advice behind
    /// the result in its next requests. `false` if there is no advice, or if no answer asked for the call.
    pub fn leave_to_client(&self) -> bool {
        let (Some(advice), Some((scope, id))) = (&self.advice, &self.asked) else { return false };
        scope.session.tree().notes(scope.at).add(id, advice);
        true
    }
}

/// The advice of the first trip that steers.
pub(crate) fn advice(trips: &[Trip]) -> Option<String> {
    let steers = |trip: &&Trip| trip.verdict == Verdict::Steer;
    trips.iter().filter(steers).find_map(|trip| trip.advice.clone())
}

/// The same of the warnings with which a call was admitted.
pub(crate) fn admitted_with(warnings: &[Why]) -> Option<String> {
    let steers = |why: &&Why| why.verdict == Verdict::Steer;
    warnings.iter().filter(steers).find_map(|why| why.advice.clone())
}
