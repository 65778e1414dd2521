//! The harm guard: what each preset does about the first call.

use super::*;
use crate::guard::harm::OnHarm;
use crate::harm::{HarmKind, Reach, Recovery};
use crate::policy::Preset;

fn call(harms: Vec<Harm>) -> Call {
    Call::Tool(ToolCall { name: "Bash".into(), harms, ..ToolCall::default() })
}

fn harm(kind: HarmKind, reach: Reach, recovery: Recovery) -> Harm {
    Harm { kind, reach, recovery, ..Harm::destroys("rm -rf", "data") }
}

/// What observe, balanced and strict say about the first call that does this.
fn verdicts(harms: &[Harm]) -> String {
    let one = |preset: Preset| {
        let mut world = World::default().with("s", preset.policies().session);
        world.admit("s", &call(harms.to_vec()), 1).verdict.to_string()
    };
    Preset::ALL.map(one).join(" ")
}

#[test]
fn presets_judge_the_first_call() {
    use HarmKind::*;
    use Reach::*;
    for (kind, reach, recovery, expected) in [
        (Destroys, Home, Recovery::None, "warn ask block"),
        (Destroys, Workspace, Recovery::None, "warn ask block"),
        (Destroys, Directory, Recovery::None, "warn ask block"),
        (DiscardsWork, Workspace, Recovery::None, "warn ask block"),
        (RewritesHistory, Production, Recovery::Elsewhere, "warn ask block"),
        (RewritesHistory, Remote, Recovery::Elsewhere, "warn allow ask"),
        (Stops, System, Recovery::Elsewhere, "warn allow ask"),
        (OpensAccess, System, Recovery::Elsewhere, "warn ask block"),
        (Destroys, Remote, Recovery::Unknown, "allow allow allow"),
        (Destroys, Production, Recovery::Unknown, "warn ask block"),
        (Destroys, Item, Recovery::Unknown, "allow allow allow"),
        (Destroys, Directory, Recovery::Cache, "allow allow allow"),
        (Destroys, Workspace, Recovery::VersionControl, "allow allow allow"),
        (ReadsSecret, Outside, Recovery::None, "warn warn ask"),
        (SendsSecret, Remote, Recovery::None, "warn warn ask"),
        (RunsDownload, System, Recovery::None, "warn warn ask"),
        (Unreadable, Outside, Recovery::Unknown, "warn warn ask"),
        (DisablesDeadstop, System, Recovery::None, "warn ask block"),
    ] {
        let told = verdicts(&[harm(kind, reach, recovery)]);
        assert_eq!(told, expected, "{kind:?} {reach:?} {recovery:?}");
    }
    assert_eq!(verdicts(&[]), "allow allow allow");
}

#[test]
fn the_worst_harm_decides_and_is_told() {
    let mild = harm(HarmKind::ReadsSecret, Reach::Outside, Recovery::None);
    let bad = harm(HarmKind::Destroys, Reach::Home, Recovery::None);
    let mut world = World::default().with("s", Policy::strict());
    let admission = world.admit("s", &call(vec![mild.clone(), bad, mild]), 1);
    let trip = &admission.trips[0];
    assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::Harm, "harm_catastrophic"));
    assert_eq!(
        trip.explain(),
        "blocked: `rm -rf data` destroys the home directory, and it does not come back. Safer: \
         name the exact files inside the workspace, or move them to a trash directory"
    );
}

#[test]
fn reasons_are_stable_codes() {
    for (kind, reach, reason) in [
        (HarmKind::Destroys, Reach::Home, "harm_catastrophic"),
        (HarmKind::Destroys, Reach::Directory, "harm_serious"),
        (HarmKind::ReadsSecret, Reach::Item, "harm_secret"),
        (HarmKind::SendsSecret, Reach::Remote, "harm_secret"),
        (HarmKind::RunsDownload, Reach::Outside, "harm_download"),
        (HarmKind::Unreadable, Reach::Outside, "harm_unreadable"),
        (HarmKind::DisablesDeadstop, Reach::System, "harm_deadstop"),
    ] {
        let mut world = World::default().with("s", Policy::strict());
        let admission = world.admit("s", &call(vec![harm(kind, reach, Recovery::None)]), 1);
        assert_eq!(admission.trips[0].reason, reason);
    }
}

#[test]
fn a_pattern_allows_a_deed_and_never_disabling_deadstop() {
    let policy = policy(|p| {
        p.harm.enabled = true;
        p.harm.serious = OnHarm::Terminate;
        p.harm.catastrophic = OnHarm::Block;
        p.harm.allow = vec![Pattern::new("rm -rf da*")];
    });
    let lost = harm(HarmKind::Destroys, Reach::Directory, Recovery::None);
    let other = Harm { target: "src".into(), ..lost.clone() };
    let off = harm(HarmKind::DisablesDeadstop, Reach::System, Recovery::None);
    let mut world = World::default().with("s", policy);
    assert_eq!(world.admit("s", &call(vec![lost.clone()]), 1).verdict, Verdict::Allow);
    assert_eq!(world.admit("s", &call(vec![off]), 2).verdict, Verdict::Block);
    assert_eq!(world.admit("s", &call(vec![lost, other]), 3).verdict, Verdict::Kill);
}

#[test]
fn counting_goes_on_while_calls_are_asked_about() {
    let lost = call(vec![harm(HarmKind::Destroys, Reach::Directory, Recovery::None)]);
    let mut world = World::default().with("s", Policy::balanced());
    for now in [1, 2] {
        assert_eq!(world.admit("s", &lost, now).verdict, Verdict::Ask);
        let approved = admit_approved(&mut world.chain("s"), &lost, Time(now));
        assert_eq!(approved.verdict, Verdict::Warn);
    }
    let third = world.admit("s", &lost, 3);
    assert_eq!((third.verdict, third.trips[0].guard), (Verdict::Kill, GuardId::Destructive));
}

#[test]
fn scratch_files_are_no_incident_however_often() {
    let scratch = call(vec![harm(HarmKind::Destroys, Reach::Item, Recovery::Session)]);
    let policy = policy(|p| {
        p.destructive.enabled = true;
        p.harm = Policy::strict().harm;
    });
    let mut world = World::default().with("s", policy);
    for now in 0..20 {
        assert_eq!(world.admit("s", &scratch, now).verdict, Verdict::Allow);
    }
}

#[test]
fn a_policy_lists_a_thousand_patterns_at_most() {
    let listed = |count: usize| crate::guard::harm::HarmSettings {
        allow: vec![Pattern::new("rm a"); count],
        ..Policy::balanced().harm
    };
    assert!(listed(1000).validate().is_ok());
    assert!(listed(1001).validate().is_err());
}
