//! The outbox: nothing is sent twice at the same time, nothing is forgotten, a storm is one message.

use std::collections::HashSet;

use deadstop_store::{Attempt, Batch, Delivery, DeliveryFilter, DeliveryState, Paging};

use crate::place::{TestDatabase, on_both};
use crate::sample::{at, delivery, number, target};

on_both![
    a_claim_is_a_lease,
    many_claim_and_none_twice,
    a_storm_is_one_message,
    what_waits_for_a_target_ends_with_it,
];

async fn a_claim_is_a_lease(place: &TestDatabase) {
    let store = place.open().await;
    assert_eq!(store.next_due().await.unwrap(), None);
    let later = Delivery { due: at(50), ..delivery(number(2), 1) };
    store.enqueue(&[delivery(number(1), 1), later]).await.unwrap();
    assert_eq!(store.next_due().await.unwrap(), Some(at(10)));
    assert_eq!(store.claim_deliveries(at(9), at(40), 10).await.unwrap(), []);
    let taken = store.claim_deliveries(at(10), at(40), 10).await.unwrap();
    assert_eq!((taken.len(), taken[0].delivery.id, taken[0].attempts), (1, number(1), 1));
    assert_eq!(store.claim_deliveries(at(39), at(80), 10).await.unwrap(), [], "it is taken");
    // The first claim has expired: another node claims it.
    let taken = store.claim_deliveries(at(40), at(80), 10).await.unwrap();
    assert_eq!((taken[0].delivery.id, taken[0].attempts), (number(1), 2));
    let again = Attempt::Again { due: at(60) };
    assert!(store.finish_delivery(number(1), again, "503", at(45)).await.unwrap());
    let taken = store.claim_deliveries(at(60), at(90), 1).await.unwrap();
    assert_eq!(taken[0].delivery.id, number(2), "whatever has waited longest comes first");
    let taken = store.claim_deliveries(at(60), at(90), 1).await.unwrap();
    assert_eq!((taken[0].delivery.id, taken[0].answer.as_deref()), (number(1), Some("503")));
    assert!(store.finish_delivery(number(1), Attempt::Delivered, "200", at(61)).await.unwrap());
    let late = store.finish_delivery(number(1), Attempt::Failed, "too late", at(62)).await;
    assert!(!late.unwrap(), "what was delivered stays delivered");
    assert!(store.finish_delivery(number(2), Attempt::Failed, "no", at(63)).await.unwrap());
    assert_eq!(store.claim_deliveries(at(10_000), at(10_001), 10).await.unwrap(), []);

    let none = DeliveryFilter::default;
    let (delivered, failed) = (Some(DeliveryState::Delivered), Some(DeliveryState::Failed));
    let cases = [
        (none(), vec![2, 1]),
        (DeliveryFilter { state: delivered, ..none() }, vec![1]),
        (DeliveryFilter { state: failed, ..none() }, vec![2]),
        (DeliveryFilter { target: Some(2), ..none() }, vec![]),
        (DeliveryFilter { agent: Some("a".into()), ..none() }, vec![2, 1]),
        (DeliveryFilter { incident: Some("i2".into()), ..none() }, vec![]),
    ];
    for (filter, expected) in cases {
        let log = store.deliveries("default", &filter, &Paging::default()).await.unwrap();
        let ids: Vec<_> = log.items.iter().map(|item| item.delivery.id).collect();
        assert_eq!(ids, expected.into_iter().map(number).collect::<Vec<_>>(), "{filter:?}");
    }
}

async fn many_claim_and_none_twice(place: &TestDatabase) {
    let (here, there) = (place.open().await, place.open().await);
    let all: Vec<_> = (0..200).map(|n| delivery(number(n), 1)).collect();
    here.enqueue(&all).await.unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let store = if n % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                let mut taken = Vec::new();
                // A claim may come back empty because others were faster with the same rows.
                while store.next_due().await.unwrap() < Some(at(1000)) {
                    let some = store.claim_deliveries(at(20), at(1000), 7).await.unwrap();
                    taken.extend(some.into_iter().map(|item| item.delivery.id));
                }
                taken
            })
        })
        .collect();
    let mut seen = HashSet::new();
    for task in tasks {
        for id in task.await.unwrap() {
            assert!(seen.insert(id), "{id} was taken twice");
        }
    }
    assert_eq!(seen.len(), 200);
}

async fn a_storm_is_one_message(place: &TestDatabase) {
    let store = place.open().await;
    let bunched = |ms: u64, target: i64, bunch: &str| Delivery {
        bunch: bunch.into(),
        at: at(ms),
        ..delivery(number(ms), target)
    };
    let storm: Vec<_> = (1..=50).map(|ms| bunched(ms, 1, "ada/loop")).collect();
    let others = vec![bunched(60, 2, "ada/loop"), bunched(61, 1, "bob/loop"), bunched(62, 1, "")];
    let deliveries = [storm, others, vec![bunched(63, 1, "")]].concat();
    store.write(&Batch { deliveries, ..Batch::default() }).await.unwrap();
    let taken = store.claim_deliveries(at(10), at(500), 100).await.unwrap();
    let shown: Vec<_> =
        taken.iter().map(|item| (item.delivery.id, item.times, item.last)).collect();
    assert_eq!(
        shown,
        [
            (number(1), 50, at(50)),
            (number(60), 1, at(60)),
            (number(61), 1, at(61)),
            (number(62), 1, at(62)),
            (number(63), 1, at(63)),
        ]
    );
    // What is on its way cannot take more in: the next one waits beside it.
    store.enqueue(&[bunched(70, 1, "ada/loop"), bunched(71, 1, "ada/loop")]).await.unwrap();
    let taken = store.claim_deliveries(at(100), at(500), 100).await.unwrap();
    assert_eq!(taken.iter().map(|item| item.times).collect::<Vec<_>>(), [2]);
}

async fn what_waits_for_a_target_ends_with_it(place: &TestDatabase) {
    let store = place.open().await;
    store.create_target(&target(1), None).await.unwrap();
    store.enqueue(&[delivery(number(1), 1), delivery(number(2), 2)]).await.unwrap();
    assert!(store.delete_target("default", 1, at(5), None).await.unwrap());
    let log = store.deliveries("default", &DeliveryFilter::default(), &Paging::default()).await;
    let states: Vec<_> = log.unwrap().items.iter().map(|item| item.state).collect();
    assert_eq!(states, [DeliveryState::Waiting, DeliveryState::Failed]);
}
