//! Fields of a JSON body, taken one by one; what is wrong with them is gathered, not thrown.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is the matter with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FieldProblem {
    /// There is no such field.
    Unknown,
    /// It must be there and is not.
    Missing,
    /// It is there and cannot be.
    Invalid,
}

/// A field that is wrong: where it stands, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldFault {
    /// Its path in the body, such as `budget.max_cost_usd`; empty for the body itself.
    pub field: String,
    /// What is the matter.
    pub problem: FieldProblem,
    /// The same in words, with what to do about it.
    pub detail: String,
}

impl FieldFault {
    /// A field that does not exist.
    pub fn unknown(field: impl Into<String>) -> FieldFault {
        let detail = "unknown field; remove it".to_owned();
        FieldFault { field: field.into(), problem: FieldProblem::Unknown, detail }
    }

    /// A field that is not there.
    pub fn missing(field: impl Into<String>) -> FieldFault {
        let detail = "missing; send the full object, null where nothing is set".to_owned();
        FieldFault { field: field.into(), problem: FieldProblem::Missing, detail }
    }

    /// A field that cannot be what it is.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> FieldFault {
        FieldFault { field: field.into(), problem: FieldProblem::Invalid, detail: detail.into() }
    }
}

/// A path, one step further in.
pub(super) fn join(path: &str, step: &str) -> String {
    if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") }
}

/// An object of which every known field must be there and no other may be.
pub(super) struct Fields<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// The object at `path`; complains about what is unknown and what is missing.
    pub(super) fn of(
        value: &'a Value,
        path: &str,
        known: &[&str],
        faults: &mut Vec<FieldFault>,
    ) -> Fields<'a> {
        let fields = Fields { path: path.to_owned(), map: value.as_object() };
        let Some(map) = fields.map else {
            faults.push(FieldFault::invalid(path, "must be an object"));
            return fields;
        };
        let unknown = map.keys().filter(|key| !known.contains(&key.as_str()));
        faults.extend(unknown.map(|key| FieldFault::unknown(join(path, key))));
        let missing = known.iter().filter(|key| !map.contains_key(**key));
        faults.extend(missing.map(|key| FieldFault::missing(join(path, key))));
        fields
    }

    /// The object below, with the same complaints; nothing is said twice about one that is missing.
    pub(super) fn inner(
        &self,
        name: &str,
        known: &[&str],
        faults: &mut Vec<FieldFault>,
    ) -> Fields<'a> {
        let path = join(&self.path, name);
        match self.get(name) {
            Some(value) => Fields::of(value, &path, known, faults),
            None => Fields { path, map: None },
        }
    }

    /// A field, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name)
    }

    /// A field read as `T`; complains, in these words, if it is something else.
    pub(super) fn read<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        must_be: &str,
        faults: &mut Vec<FieldFault>,
    ) -> Option<T> {
        match T::deserialize(self.get(name)?) {
            Ok(value) => Some(value),
            Err(_) => {
                faults.push(FieldFault::invalid(
                    join(&self.path, name),
                    format!("must be {must_be}"),
                ));
                None
            }
        }
    }
}
