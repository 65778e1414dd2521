//! The severity table, row by row: each letter is a recovery, from surely to never.

use super::*;

/// Severities for session, cache, version control, elsewhere, unknown, none.
fn row(kind: HarmKind, reach: Reach) -> String {
    let letter = |recovery: &Recovery| match severity(kind, reach, *recovery) {
        Severity::None => '-',
        Severity::Minor => 'm',
        Severity::Serious => 's',
        Severity::Catastrophic => 'C',
    };
    Recovery::ALL.iter().map(letter).collect()
}

#[test]
fn every_row_of_the_table() {
    use HarmKind::*;
    use Reach::*;
    let table: [(HarmKind, [&str; 8]); 10] = [
        // item, directory, workspace, outside, remote, home, system, production
        (
            Destroys,
            ["---mms", "---mss", "---msC", "---mss", "---sss", "mmssCC", "mmssCC", "mmssCC"],
        ),
        (
            DiscardsWork,
            ["---mms", "---mss", "---mss", "---mss", "---sss", "mmssCC", "mmssCC", "mmssCC"],
        ),
        (
            RewritesHistory,
            ["mmmsss", "mmmsss", "mmmsss", "mmmsss", "ssssss", "mmmsss", "mmmsss", "CCCCCC"],
        ),
        (Stops, ["-mmmmm", "-mmmmm", "-mmmmm", "-mmmmm", "-sssss", "-sssss", "-ssssC", "-CCCCC"]),
        (ReadsSecret, ["mmmmmm"; 8]),
        (SendsSecret, ["ssssss"; 8]),
        (RunsDownload, ["ssssss"; 8]),
        (
            OpensAccess,
            ["mmmmmm", "mmmmmm", "ssssss", "ssssss", "ssssss", "ssssss", "CCCCCC", "CCCCCC"],
        ),
        (DisablesDeadstop, ["CCCCCC"; 8]),
        (Unreadable, ["mmmmmm"; 8]),
    ];
    assert_eq!(table.map(|(kind, _)| kind), HarmKind::ALL);
    for (kind, rows) in table {
        for (reach, expected) in Reach::ALL.into_iter().zip(rows) {
            assert_eq!(row(kind, reach), expected, "{kind:?} {reach:?}");
        }
    }
    assert_eq!(Reach::ALL[0], Item);
}

#[test]
fn what_comes_back_less_is_never_milder() {
    for kind in HarmKind::ALL {
        for reach in Reach::ALL {
            for pair in Recovery::ALL.windows(2) {
                let [surer, less_sure] = [pair[0], pair[1]].map(|r| severity(kind, reach, r));
                assert!(surer <= less_sure, "{kind:?} {reach:?} {pair:?}");
            }
        }
    }
}

#[test]
fn only_serious_losses_count() {
    let lost = Harm::destroys("delete_asset", "a");
    assert!(lost.counts());
    for recovery in [Recovery::Session, Recovery::Cache, Recovery::VersionControl] {
        assert!(!Harm { recovery, ..lost.clone() }.counts());
    }
    assert!(!Harm { reach: Reach::Item, ..lost.clone() }.counts());
    assert!(Harm { kind: HarmKind::DiscardsWork, ..lost.clone() }.counts());
    assert!(Harm { kind: HarmKind::RewritesHistory, ..lost.clone() }.counts());
    for kind in [HarmKind::SendsSecret, HarmKind::DisablesDeadstop, HarmKind::Stops] {
        let harm = Harm { kind, ..lost.clone() };
        assert!(harm.severity() >= Severity::Serious && !harm.counts());
    }
}

#[test]
fn every_harm_has_a_sentence_and_a_safer_way() {
    for kind in HarmKind::ALL {
        for reach in Reach::ALL {
            let harm = Harm { kind, reach, ..Harm::destroys("verb", "target") };
            let named =
                harm.because().split('`').nth(1).is_some_and(|deed| deed.ends_with("target"));
            assert!(named, "{}", harm.because());
            assert!(!harm.instead().is_empty() && !harm.instead().ends_with('.'));
        }
    }
    let bare = Harm::destroys("verb", "");
    assert_eq!(bare.deed(), "verb");
    let names = [Severity::None, Severity::Minor, Severity::Serious, Severity::Catastrophic];
    assert_eq!(names.map(Severity::name), ["none", "minor", "serious", "catastrophic"]);
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn sentences_name_what_is_lost_and_the_safer_way_fits_the_place() {
    let harm = |kind, reach| Harm { kind, reach, ..Harm::destroys("x", "y") };
    assert_eq!(
        harm(HarmKind::OpensAccess, Reach::System).because(),
        "`x y` opens access to the system",
        "what is opened is not lost"
    );
    assert_eq!(
        harm(HarmKind::Stops, Reach::Remote).because(),
        "`x y` stops or locks out something on another machine or service, and the call does not \
         tell whether it comes back"
    );
    let production = |kind| harm(kind, Reach::Production).because();
    assert!(production(HarmKind::Destroys).contains("destroys production, or something as large,"));
    assert!(production(HarmKind::RewritesHistory).contains("of a branch that others build on,"));
    assert!(production(HarmKind::Stops).contains("stops or locks out production,"));
    let safer = |reach| harm(HarmKind::Destroys, reach).instead();
    assert!(safer(Reach::Production).contains("--dry-run"));
    assert_eq!(safer(Reach::Production), safer(Reach::Remote));
    assert!(safer(Reach::Home).contains("inside the workspace"));
    assert_eq!(safer(Reach::Home), safer(Reach::System));
    assert!(safer(Reach::Directory).contains("commit first"));
}

#[test]
fn the_safer_way_names_a_program_of_the_deed_where_there_is_one() {
    let way = |kind, verb: &str, target: &str| {
        Harm { kind, ..Harm::destroys(verb, target) }.instead().to_owned()
    };
    let destroys = |verb: &str, target: &str| way(HarmKind::Destroys, verb, target);
    for (verb, target, said) in [
        ("DROP TABLE", "table=users", "rename the table"),
        ("DROP DATABASE", "database=x", "dump the database"),
        ("TRUNCATE", "table=users", "copy the table"),
        ("DELETE", "table=users", "WHERE"),
        ("docker system prune", "", "docker system df"),
        ("kubectl delete", "ns prod", "--dry-run=server"),
        ("mkfs.ext4", "/dev/sdb", "image file"),
        ("dd", "/dev/sda", "image file"),
        ("aws s3 rm", "s3://bucket", "versioning"),
    ] {
        assert!(destroys(verb, target).contains(said), "{verb}: {}", destroys(verb, target));
    }
    let general = destroys("delete_asset", "a");
    for verb in ["ddrescue", "docker-compose-x", "DELETE", "helmfile"] {
        assert_eq!(destroys(verb, "https://api.example/users/1"), general, "{verb}");
    }
    assert!(way(HarmKind::DiscardsWork, "git stash drop", "").contains("git stash show -p"));
    assert!(way(HarmKind::DiscardsWork, "git reset --hard", "HEAD").contains("git stash push -u"));
    let stops = |reach| {
        let harm =
            Harm { kind: HarmKind::Stops, reach, ..Harm::destroys("rc-service stop", "nginx") };
        harm.instead()
    };
    assert!(stops(Reach::System).contains("by its own name"));
    assert!(stops(Reach::Remote).contains("--dry-run"), "its processes have no names here");
    assert_eq!(
        way(HarmKind::DisablesDeadstop, "docker rm", "deadstop"),
        way(HarmKind::DisablesDeadstop, "x", ""),
        "whose brakes they are matters more than the program"
    );
}

#[test]
fn a_sentence_says_what_a_well_known_program_does() {
    let said = |kind, verb: &str, target: &str, reach, recovery| {
        let (verb, target) = (verb.to_owned(), target.to_owned());
        Harm { kind, verb, target, reach, recovery }.because()
    };
    use HarmKind::{Destroys, OpensAccess, RewritesHistory, Stops};
    use Recovery::{Elsewhere, None};
    for (kind, verb, target, reach, recovery, sentence) in [
        (
            Destroys,
            "crontab -r",
            "",
            Reach::Outside,
            None,
            "`crontab -r` removes all scheduled jobs of a user, and it does not come back",
        ),
        (
            Destroys,
            "docker system prune",
            "",
            Reach::Directory,
            Elsewhere,
            "`docker system prune` removes stopped containers, unused images and networks of this \
             machine, which takes work to bring back",
        ),
        (
            Destroys,
            "DROP DATABASE",
            "database=prod",
            Reach::Production,
            None,
            "`DROP DATABASE database=prod` deletes a database with all that is in it (production, \
             or something as large), and it does not come back",
        ),
        (
            RewritesHistory,
            "git push --force",
            "origin main",
            Reach::Production,
            None,
            "`git push --force origin main` rewrites the history of a branch that others build \
             on, and it does not come back",
        ),
        (
            Stops,
            "npm",
            "db:reset",
            Reach::Remote,
            Elsewhere,
            "`npm db:reset` runs a task whose name says that it takes something down, which takes \
             work to bring back",
        ),
        (
            Destroys,
            "edit",
            "/etc/hosts",
            Reach::System,
            Elsewhere,
            "`edit /etc/hosts` changes what the system needs, which takes work to bring back",
        ),
        (
            OpensAccess,
            "chmod 000",
            "/srv",
            Reach::System,
            Elsewhere,
            "`chmod 000 /srv` takes all rights to files away, in the system",
        ),
        (
            OpensAccess,
            "ngrok",
            "http 80",
            Reach::Remote,
            Elsewhere,
            "`ngrok http 80` makes this machine reachable from the internet",
        ),
    ] {
        assert_eq!(said(kind, verb, target, reach, recovery), sentence);
    }
}

/// A row that an earlier one takes everything from is never used.
#[test]
fn no_row_hides_a_later_one() {
    for rows in [words::deeds(), safer::deeds()] {
        for (at, later) in rows.iter().enumerate() {
            let hidden = rows[..at].iter().find(|earlier| safer::begins(later, earlier));
            assert!(hidden.is_none(), "{later} is hidden by {hidden:?}");
        }
    }
}
