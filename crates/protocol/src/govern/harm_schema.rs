//! A harm as the API's document describes it. Core has no schemas, so its shape is written here once
//! more; a test holds the two together.
#![expect(dead_code, reason = "only the schemas are used")]

use utoipa::ToSchema;

/// What a call would do to the world, from a hook that has looked at the machine.
#[derive(ToSchema)]
pub(super) struct HarmSeen {
    /// What sort of harm.
    kind: HarmKindSeen,
    /// What is done, in a word or two.
    verb: String,
    /// What it is done to.
    target: String,
    /// How far it reaches.
    reach: ReachSeen,
    /// Whether what is lost comes back.
    recovery: RecoverySeen,
}

/// Sorts of harm.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum HarmKindSeen {
    Destroys,
    DiscardsWork,
    RewritesHistory,
    Stops,
    ReadsSecret,
    SendsSecret,
    RunsDownload,
    OpensAccess,
    DisablesDeadstop,
    Unreadable,
}

/// How far a harm reaches.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum ReachSeen {
    Item,
    Directory,
    Workspace,
    Outside,
    Remote,
    Home,
    System,
    Production,
}

/// Whether what is lost comes back.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum RecoverySeen {
    Session,
    Cache,
    VersionControl,
    Elsewhere,
    Unknown,
    None,
}

#[cfg(test)]
mod tests {
    use deadstop_core::{Harm, HarmKind, Reach, Recovery};
    use utoipa::PartialSchema;

    use super::*;

    /// The names that a schema lists.
    fn names<T: PartialSchema>() -> Vec<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        serde_json::from_value(schema["enum"].clone()).unwrap()
    }

    #[test]
    fn the_schema_is_what_core_reads() {
        let harm = |kind: &str, reach: &str, recovery: &str| {
            let text = serde_json::json!({
                "kind": kind, "verb": "rm", "target": "x", "reach": reach, "recovery": recovery,
            });
            serde_json::from_value::<Harm>(text)
        };
        for kind in names::<HarmKindSeen>() {
            harm(&kind, "item", "none").unwrap();
        }
        for reach in names::<ReachSeen>() {
            harm("destroys", &reach, "none").unwrap();
        }
        for recovery in names::<RecoverySeen>() {
            harm("destroys", "item", &recovery).unwrap();
        }
        // The last of each: a new one in core is missed here.
        let last = |names: Vec<String>| names.last().cloned().unwrap();
        let name = |value: serde_json::Value| value.as_str().unwrap().to_owned();
        assert_eq!(
            last(names::<HarmKindSeen>()),
            name(serde_json::to_value(HarmKind::Unreadable).unwrap())
        );
        assert_eq!(
            last(names::<ReachSeen>()),
            name(serde_json::to_value(Reach::Production).unwrap())
        );
        assert_eq!(
            last(names::<RecoverySeen>()),
            name(serde_json::to_value(Recovery::None).unwrap())
        );
    }
}
