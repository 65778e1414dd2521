//! What was said: the requests and answers that an incident is about, and those of single calls.
//!
//! Secrets are removed before anything gets here.

use deadstop_core::Time;

use crate::backend::{Row, Tx, Value, sql};
use crate::{Store, StoreError};

/// A request and its answer, perhaps shortened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchange {
    /// What was asked.
    pub request: Option<String>,
    /// What was answered.
    pub response: Option<String>,
    /// How many characters the request had in full.
    pub request_chars: u64,
    /// How many characters the answer had in full.
    pub response_chars: u64,
    /// Whether the request was shortened.
    pub request_cut: bool,
    /// Whether the answer was shortened.
    pub response_cut: bool,
}

/// A request body as it came in, perhaps shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// Its beginning.
    pub text: String,
    /// How many characters it had in full.
    pub chars: u64,
    /// Whether it was shortened.
    pub cut: bool,
}

/// One of the calls that an incident is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its project.
    pub project: String,
    /// The incident.
    pub incident: String,
    /// Its place among the evidence, from zero.
    pub position: u64,
    /// When the incident happened.
    pub at: Time,
    /// The call, if it is known.
    pub call: Option<i64>,
    /// What was said.
    pub exchange: Exchange,
    /// The whole request of the call that tripped, with its system prompt and its history.
    pub body: Option<Body>,
}

/// What was said in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Its project.
    pub project: String,
    /// The call.
    pub call: i64,
    /// What was said.
    pub exchange: Exchange,
}

impl Store {
    /// The evidence of an incident, in order.
    pub async fn evidence(
        &self,
        project: &str,
        incident: &str,
    ) -> Result<Vec<Evidence>, StoreError> {
        // `|| ''` keeps the planner from using the project's index, which is useless if there is
        // one project only.
        let query = sql("SELECT * FROM evidence WHERE incident = $1 AND project || '' = $2 \
             ORDER BY position LIMIT 1000");
        let found = self.backend.rows(query.bind(incident).bind(project)).await?;
        let read = |row: &Row| {
            Ok(Evidence {
                project: row.get("project")?,
                incident: row.get("incident")?,
                position: row.unsigned("position")?,
                at: Time(row.unsigned("at_ms")?),
                call: row.get("call_id")?,
                exchange: exchange(row)?,
                body: body(row)?,
            })
        };
        found.iter().map(read).collect()
    }

    /// What was said in a call, if it was kept.
    pub async fn payload(&self, project: &str, call: i64) -> Result<Option<Payload>, StoreError> {
        let query = sql("SELECT * FROM payloads WHERE call_id = $1 AND project = $2");
        let found = self.backend.row(query.bind(call).bind(project)).await?;
        let read = |row: &Row| {
            Ok(Payload {
                project: row.get("project")?,
                call: row.get("call_id")?,
                exchange: exchange(row)?,
            })
        };
        found.as_ref().map(read).transpose()
    }
}

/// Writes evidence; what is there stays, except that an answer may come later.
pub(crate) async fn write(tx: &mut Tx, evidence: &[&Evidence]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO evidence (incident, position, project, at_ms, call_id, request, response, \
         request_chars, response_chars, request_cut, response_cut, body, body_chars, body_cut)",
        "ON CONFLICT (incident, position) DO UPDATE SET response = excluded.response, \
         response_chars = excluded.response_chars, response_cut = excluded.response_cut \
         WHERE evidence.response IS NULL",
        evidence,
        |item, values| {
            values.extend([
                item.incident.as_str().into(),
                item.position.into(),
                item.project.as_str().into(),
                item.at.into(),
                item.call.into(),
            ]);
            said(&item.exchange, values);
            values.extend([
                item.body.as_ref().map(|body| body.text.as_str()).into(),
                item.body.as_ref().map_or(0, |body| body.chars).into(),
                item.body.as_ref().is_some_and(|body| body.cut).into(),
            ]);
        },
    )
    .await?;
    Ok(())
}

/// Writes what was said in calls; an answer may come later than its request.
pub(crate) async fn write_payloads(tx: &mut Tx, payloads: &[&Payload]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO payloads (call_id, project, request, response, request_chars, \
         response_chars, request_cut, response_cut)",
        "ON CONFLICT (call_id) DO UPDATE SET response = excluded.response, \
         response_chars = excluded.response_chars, response_cut = excluded.response_cut \
         WHERE payloads.response IS NULL",
        payloads,
        |payload, values| {
            values.extend([payload.call.into(), payload.project.as_str().into()]);
            said(&payload.exchange, values);
        },
    )
    .await?;
    Ok(())
}

fn said<'q>(exchange: &'q Exchange, values: &mut Vec<Value<'q>>) {
    values.extend([
        (&exchange.request).into(),
        (&exchange.response).into(),
        exchange.request_chars.into(),
        exchange.response_chars.into(),
        exchange.request_cut.into(),
        exchange.response_cut.into(),
    ]);
}

fn body(row: &Row) -> Result<Option<Body>, StoreError> {
    let Some(text) = row.get::<Option<String>>("body")? else { return Ok(None) };
    Ok(Some(Body { text, chars: row.unsigned("body_chars")?, cut: row.get("body_cut")? }))
}

fn exchange(row: &Row) -> Result<Exchange, StoreError> {
    Ok(Exchange {
        request: row.get("request")?,
        response: row.get("response")?,
        request_chars: row.unsigned("request_chars")?,
        response_chars: row.unsigned("response_chars")?,
        request_cut: row.get("request_cut")?,
        response_cut: row.get("response_cut")?,
    })
}
