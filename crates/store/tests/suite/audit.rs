//! The audit's hash chain: it holds under concurrent writers, and reveals tampering.

use deadstop_store::{AuditEvent, AuditFilter, Batch, Paging, Period, Verified};

use crate::place::{TestDatabase, on_both};
use crate::sample::{at, event};

on_both![
    a_chain_that_nobody_touched,
    many_add_to_one_chain,
    whatever_is_done_to_it_shows,
    entries_are_found,
    what_was_said_cannot_imitate_a_border,
];

async fn a_chain_that_nobody_touched(place: &TestDatabase) {
    let store = place.open().await;
    let verified = store.verify_audit("default").await.unwrap();
    assert_eq!(verified, Verified::Whole { entries: 0, head: String::new() });
    for number in 1..=5 {
        store.audit(&event(number)).await.unwrap();
    }
    // The same event again is the same entry.
    store.audit(&event(3)).await.unwrap();
    let theirs = AuditEvent { project: "other".into(), ..event(3) };
    store.audit(&theirs).await.unwrap();
    let odd = AuditEvent {
        reason: "nul \0, é, 漢字, 👩‍👩‍👧, '; DROP TABLE audit; --".into(),
        at: deadstop_core::Time(u64::MAX),
        ..event(6)
    };
    store.audit(&odd).await.unwrap();
    store.close().await;

    let store = place.open().await;
    let entries = store.audit_after("default", 0, 100).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(entries[0].prev, "");
    assert_eq!(entries[1].prev, entries[0].hash);
    assert!(entries.iter().all(|entry| entry.hash == entry.digest() && entry.hash.len() == 64));
    assert!(entries[5].event.reason.starts_with("nul \u{fffd}, é"));
    let head = entries[5].hash.clone();
    let verified = store.verify_audit("default").await.unwrap();
    assert_eq!(verified, Verified::Whole { entries: 6, head });
    assert_eq!(store.audited_projects().await.unwrap(), ["default", "other"]);
    let pieces = store.audit_after("default", 4, 1).await.unwrap();
    assert_eq!(pieces[0].seq, 5);
}

async fn many_add_to_one_chain(place: &TestDatabase) {
    let (here, there) = (place.open().await, place.open().await);
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let store = if n % 2 == 0 { here.clone() } else { there.clone() };
            // In different orders, which must not make two of them wait for each other.
            let mut audit = vec![
                AuditEvent { project: "a".into(), ..event(2 * n) },
                AuditEvent { project: "b".into(), ..event(2 * n + 1) },
            ];
            if n % 4 < 2 {
                audit.reverse();
            }
            tokio::spawn(async move { store.write(&Batch { audit, ..Batch::default() }).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    for project in ["a", "b"] {
        let verified = here.verify_audit(project).await.unwrap();
        assert!(matches!(verified, Verified::Whole { entries: 40, .. }), "{verified:?}");
    }
}

async fn whatever_is_done_to_it_shows(place: &TestDatabase) {
    let store = place.open().await;
    let cases = [
        ("a", 7, "UPDATE audit SET reason = 'nothing' WHERE project = 'a' AND seq = 7"),
        ("b", 7, "UPDATE audit SET who = 'eve' WHERE project = 'b' AND seq = 7"),
        ("c", 7, "UPDATE audit SET at_ms = at_ms + 1 WHERE project = 'c' AND seq = 7"),
        ("d", 7, "UPDATE audit SET detail = '{}' WHERE project = 'd' AND seq = 7"),
        ("e", 7, "DELETE FROM audit WHERE project = 'e' AND seq = 7"),
        ("f", 1, "DELETE FROM audit WHERE project = 'f' AND seq = 1"),
        ("g", 10, "DELETE FROM audit WHERE project = 'g' AND seq = 10"),
        ("h", 1, "DELETE FROM audit WHERE project = 'h'"),
        ("i", 7, "UPDATE audit SET hash = prev WHERE project = 'i' AND seq = 7"),
        (
            "j",
            7,
            "UPDATE audit SET seq = CASE seq WHEN 7 THEN -8 ELSE -7 END \
             WHERE project = 'j' AND seq IN (7, 8)",
        ),
        ("k", 10, "DELETE FROM audit_heads WHERE project = 'k'"),
        ("l", 10, "UPDATE audit_heads SET hash = '' WHERE project = 'l'"),
        ("m", 1, "UPDATE audit SET project = 'm' WHERE project = 'z' AND seq <= 10"),
    ];
    let projects = "abcdefghijklz".chars().map(String::from);
    let audit = projects
        .flat_map(|project| {
            (1..=10).map(move |n| AuditEvent { project: project.clone(), ..event(n) })
        })
        .collect();
    store.write(&Batch { audit, ..Batch::default() }).await.unwrap();
    for (project, seq, done) in cases {
        assert!(place.tamper(done).await > 0, "{done}");
        if project == "j" {
            place.tamper("UPDATE audit SET seq = -seq WHERE seq < 0").await;
        }
        match store.verify_audit(project).await.unwrap() {
            Verified::Broken { seq: found, .. } => assert_eq!(found, seq, "{done}"),
            whole => panic!("{done}: {whole:?}"),
        }
    }
}

async fn entries_are_found(place: &TestDatabase) {
    let store = place.open().await;
    let one = AuditEvent { who: "eve".into(), at: at(10), ..event(1) };
    let two = AuditEvent { action: "key.create".into(), at: at(20), ..event(2) };
    let three = AuditEvent { subject: "writer".into(), at: at(30), ..event(3) };
    let audit = vec![one, two, three];
    store.write(&Batch { audit, ..Batch::default() }).await.unwrap();
    let none = AuditFilter::default;
    let cases = [
        (none(), vec![3, 2, 1]),
        (AuditFilter { who: Some("eve".into()), ..none() }, vec![1]),
        (AuditFilter { action: Some("key.create".into()), ..none() }, vec![2]),
        (AuditFilter { subject: Some("writer".into()), ..none() }, vec![3]),
        (
            AuditFilter { period: Period { from: Some(at(20)), to: Some(at(30)) }, ..none() },
            vec![2],
        ),
    ];
    for (filter, expected) in cases {
        let page = store.audit_entries("default", &filter, &Paging::default()).await.unwrap();
        let found: Vec<_> = page.items.iter().map(|entry| entry.event.number).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// Two entries whose words run together to the same text have different hashes.
async fn what_was_said_cannot_imitate_a_border(place: &TestDatabase) {
    let store = place.open().await;
    store.audit(&AuditEvent { who: "ab".into(), action: "c".into(), ..event(1) }).await.unwrap();
    let mut entry = store.audit_after("default", 0, 1).await.unwrap().remove(0);
    entry.event.who = "a".into();
    entry.event.action = "bc".into();
    assert_ne!(entry.digest(), entry.hash);
}
