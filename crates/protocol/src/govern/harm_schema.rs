//! A harm as the API's document describes it. Core has no schemas, so they are built here, with the
//! names that core reads and writes.

use deadstop_core::{HarmKind, Reach, Recovery};
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, RefBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// What a call would do to the world.
pub(super) enum HarmSeen {}

/// Sorts of harm.
enum HarmKindSeen {}

/// How far a harm reaches.
enum ReachSeen {}

/// Whether what is lost comes back.
enum RecoverySeen {}

impl PartialSchema for HarmSeen {
    fn schema() -> RefOr<Schema> {
        let text = |about| ObjectBuilder::new().schema_type(Type::String).description(Some(about));
        let one_of = |name: std::borrow::Cow<'_, str>, about: &str| {
            RefBuilder::new().ref_location_from_schema_name(name).description(Some(about))
        };
        let about =
            "What a call would do to the world, from a hook that has looked at the machine.";
        ObjectBuilder::new()
            .description(Some(about))
            .property("kind", one_of(HarmKindSeen::name(), "What sort of harm."))
            .required("kind")
            .property("verb", text("What is done, in a word or two."))
            .required("verb")
            .property("target", text("What it is done to."))
            .required("target")
            .property("reach", one_of(ReachSeen::name(), "How far it reaches."))
            .required("reach")
            .property("recovery", one_of(RecoverySeen::name(), "Whether what is lost comes back."))
            .required("recovery")
            .into()
    }
}

impl ToSchema for HarmSeen {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((HarmKindSeen::name().into_owned(), HarmKindSeen::schema()));
        schemas.push((ReachSeen::name().into_owned(), ReachSeen::schema()));
        schemas.push((RecoverySeen::name().into_owned(), RecoverySeen::schema()));
    }
}

impl PartialSchema for HarmKindSeen {
    fn schema() -> RefOr<Schema> {
        names(&HarmKind::ALL, "Sorts of harm.")
    }
}

impl PartialSchema for ReachSeen {
    fn schema() -> RefOr<Schema> {
        names(&Reach::ALL, "How far a harm reaches.")
    }
}

impl PartialSchema for RecoverySeen {
    fn schema() -> RefOr<Schema> {
        names(&Recovery::ALL, "Whether what is lost comes back.")
    }
}

impl ToSchema for HarmKindSeen {}
impl ToSchema for ReachSeen {}
impl ToSchema for RecoverySeen {}

/// A text that is one of core's names.
fn names(all: &[impl Serialize], about: &str) -> RefOr<Schema> {
    let names = all.iter().filter_map(|one| serde_json::to_value(one).ok());
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(names))
        .description(Some(about))
        .into()
}

#[cfg(test)]
mod tests {
    use deadstop_core::Harm;

    use super::*;

    fn listed<T: PartialSchema>() -> Vec<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        serde_json::from_value(schema["enum"].clone()).unwrap()
    }

    #[test]
    fn every_name_of_the_schema_is_read_by_core() {
        let harm = |kind: &str, reach: &str, recovery: &str| {
            let text = serde_json::json!({
                "kind": kind, "verb": "rm", "target": "x", "reach": reach, "recovery": recovery,
            });
            serde_json::from_value::<Harm>(text)
        };
        for kind in listed::<HarmKindSeen>() {
            harm(&kind, "item", "none").unwrap();
        }
        for reach in listed::<ReachSeen>() {
            harm("destroys", &reach, "none").unwrap();
        }
        for recovery in listed::<RecoverySeen>() {
            harm("destroys", "item", &recovery).unwrap();
        }
        assert_eq!(listed::<HarmKindSeen>().len(), HarmKind::ALL.len());
        assert!(harm("breaks", "item", "none").is_err());
    }
}
