//! An archive that is written while it is verified, and stores whose answers come in any order.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use krabka_remote_storage::archive::{VerifyBreakKind, VerifyRequest, verify_archive};
use object_store::ObjectStore;

use super::store::ReadOnly;
use crate::support::archive::{
    Archive, Key, assert_break, deep, epoch, metadata, shallow, trusted,
};
use crate::support::with;

async fn verify(
    store: &Arc<dyn ObjectStore>,
    request: &VerifyRequest,
) -> krabka_remote_storage::archive::ArchiveVerifyReport {
    verify_archive(store, request, &trusted()).await.unwrap()
}

#[tokio::test]
async fn what_one_listing_leaves_out_is_looked_for_in_the_next() {
    let archive = Archive::one_run(4).await;
    let hidden = archive.segments[2].clone();
    let hidden_names = [
        hidden.manifest_key.clone(),
        hidden.key(".index"),
        hidden.key(""),
    ];
    let later = archive.segments[3].manifest_key.clone();
    let pins = archive.shallow().await.positions();
    for request in [shallow(), deep()] {
        let request = with(request, |it| it.expect_positions = Some(pins.clone()));
        for front in &hidden_names {
            for in_the_second in [None, Some(later.clone())] {
                let front = front.clone();
                let mut store = ReadOnly::new(&archive.memory);
                store.hides = Box::new(move |number, key| match number {
                    0 => key.starts_with(&front),
                    1 => in_the_second.as_deref() == Some(key),
                    _ => false,
                });
                let (_, store) = store.shared();
                let report = verify(&store, &request).await;
                assert!(report.ok(), "{report:#?}");
                assert_eq!(report.manifests(), 4);
            }
        }
    }
}

#[tokio::test]
async fn what_persists_in_a_new_listing_is_reported() {
    let archive = Archive::one_run(4).await;
    let sealed = archive.segments[2].clone();
    archive.delete(&sealed.key(".index")).await;
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let report = verify(&store, &shallow()).await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Missing,
        &sealed.manifest_key,
    );
    // Listed with all others, and once more with the same result.
    assert_eq!(reads.lists_of("archive"), 1);
    assert_eq!(reads.lists_of(sealed.directory()), 1);
}

#[tokio::test]
async fn a_clean_directory_is_listed_with_all_others_and_its_manifests_are_read_once() {
    let archive = Archive::one_run(4).await;
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    assert!(verify(&store, &shallow()).await.ok());
    assert_eq!((reads.lists(), reads.lists_of("archive")), (1, 1));
    let manifests: Vec<_> = archive
        .segments
        .iter()
        .map(|s| s.manifest_key.clone())
        .collect();
    let mut gets = reads.gets();
    gets.sort();
    assert_eq!(gets, manifests);
}

#[tokio::test]
async fn a_directory_of_many_objects_is_listed_by_itself() {
    // 120 objects.
    let archive = Archive::one_run(20).await;
    let sealed = &archive.segments[10];
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let report = verify(&store, &deep()).await;
    assert!(report.ok() && report.manifests() == 20, "{report:#?}");
    assert_eq!((reads.lists(), reads.lists_of(sealed.directory())), (2, 1));

    archive.delete(&sealed.key(".index")).await;
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let report = verify(&store, &shallow()).await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Missing,
        &sealed.manifest_key,
    );
    assert_eq!((reads.lists(), reads.lists_of(sealed.directory())), (3, 2));
}

#[tokio::test]
async fn many_small_directories_take_one_listing_and_one_more_for_each_that_is_not_in_order() {
    let mut archive = Archive::empty();
    for partition in 0..200 {
        archive.seal_run("orders", partition, epoch(1), 0, 1).await;
    }
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let report = verify(&store, &shallow()).await;
    assert!(report.ok() && report.manifests() == 200, "{report:#?}");
    assert_eq!((reads.lists(), reads.gets().len()), (1, 200));

    // Of each partition a log is left, and nothing else.
    for sealed in &archive.segments {
        for key in archive.keys(&sealed.key("")).await {
            if !key.ends_with(".log") {
                archive.delete(&key).await;
            }
        }
    }
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let report = verify(&store, &shallow()).await;
    assert_eq!((report.partitions.len(), report.manifests()), (200, 0));
    assert!(
        report
            .partitions
            .iter()
            .all(|p| p.orphan_objects.len() == 1)
    );
    assert_eq!((reads.lists(), reads.gets().len()), (1 + 200, 0));
}

#[tokio::test]
async fn copies_in_flight_are_no_orphans_and_known_manifests_are_not_read_again() {
    let archive = Archive::one_run(3).await;
    let (directory, first) = {
        let sealed = &archive.segments[0];
        (sealed.directory().to_owned(), sealed.manifest_key.clone())
    };
    let (reads, store) = {
        let store = ReadOnly::new(&archive.memory);
        let mut archive = archive;
        // Whenever it is listed, a copy is under way, and the one before has been sealed.
        *store.before_list.lock() = Box::new(move |_| {
            block_on(async {
                let last = archive.segments.last().unwrap();
                let stamp = last.receipt.next_stamp().unwrap();
                let start_offset = last.metadata.start_offset() + 100;
                archive
                    .seal("orders", 0, start_offset, stamp, Key::usual())
                    .await;
                let under_way = metadata(
                    "orders",
                    0,
                    start_offset + 100,
                    0x5000 + archive.segments.len() as u128,
                    stamp,
                );
                archive.upload(&under_way).await;
            });
        });
        store.shared()
    };
    let report = verify(&store, &shallow()).await;
    assert!(report.ok(), "{report:#?}");
    // The copy that was under way in the first listing is sealed in the second.
    assert_eq!(report.manifests(), 5);
    assert_eq!((reads.lists(), reads.lists_of(&directory)), (2, 1));
    assert_eq!(reads.gets_of(&first), 1);
}

#[tokio::test]
async fn a_directory_is_listed_three_times_at_most() {
    let mut archive = Archive::one_run(3).await;
    let stamp = archive.segments[0].manifest.body.chain;
    let attempt = metadata("orders", 0, 900, 0x99, stamp);
    archive.upload(&attempt).await;
    archive.seal_run("orders", 0, epoch(5), 300, 1).await;
    let directory = archive.segments[0].directory().to_owned();
    let store = ReadOnly::new(&archive.memory);
    *store.before_list.lock() = Box::new(move |number| {
        let key = format!("{}/note-{number}", archive.segments[0].directory());
        block_on(archive.put(&key, "x"));
    });
    let (reads, store) = store.shared();
    let report = verify(&store, &shallow()).await;
    assert_eq!((reads.lists(), reads.lists_of(&directory)), (3, 2));
    // What was there in all of them is reported, the rest may have passed.
    let orphans: Vec<_> = report.partitions[0]
        .orphan_objects
        .iter()
        .map(|orphan| orphan.key.rsplit_once('/').unwrap().1.to_owned())
        .collect();
    assert_eq!(orphans.len(), 5);
    assert!(orphans.contains(&"note-0".to_owned()) && !orphans.contains(&"note-1".to_owned()));
}

#[tokio::test]
async fn an_object_that_is_listed_and_not_found_is_asked_for_again() {
    let archive = Archive::one_run(2).await;
    let sealed = &archive.segments[1];
    for key in [sealed.manifest_key.clone(), sealed.key(".index")] {
        let store = ReadOnly::new(&archive.memory);
        store.vanished.lock().insert(key.clone(), 1);
        let (_, store) = store.shared();
        assert!(verify(&store, &deep()).await.ok());

        let store = ReadOnly::new(&archive.memory);
        store.vanished.lock().insert(key, usize::MAX);
        let (_, store) = store.shared();
        let report = verify(&store, &deep()).await;
        assert_break(
            &report,
            sealed.directory(),
            VerifyBreakKind::Missing,
            &sealed.manifest_key,
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_does_not_depend_on_the_order_of_answers() {
    let archive = Archive::sealed().await;
    // Something of everything: a digest, an orphan, unreadable bodies, an unsigned manifest.
    archive
        .put(&archive.segments[1].key(".log"), "flipped!")
        .await;
    archive.put(&archive.segments[4].key(".index"), "x").await;
    archive.put("archive/note", "x").await;
    let mut unsigned = archive.segments[3].manifest.clone();
    unsigned.signature = None;
    archive
        .put_manifest(&archive.segments[3].manifest_key, &unsigned)
        .await;
    let refused = [
        archive.segments[0].key(".index"),
        archive.segments[2].key(".log"),
        archive.segments[7].key(".log"),
    ];
    let mut reports = Vec::new();
    for seed in 0..24_u64 {
        let mut store = ReadOnly::new(&archive.memory);
        store.refused = refused.clone().into();
        store.latency = Box::new(move |key| {
            let hash = key
                .bytes()
                .fold(seed.wrapping_mul(0x9e37_79b9), |hash, byte| {
                    hash.rotate_left(7).wrapping_mul(31) ^ u64::from(byte)
                });
            Duration::from_millis(hash % 50)
        });
        let (_, store) = store.shared();
        reports.push(verify(&store, &deep()).await);
    }
    assert!(reports.iter().all(|report| *report == reports[0]));
    assert!(!reports[0].ok());
    // A body behind the break was in flight with it, and is not mentioned.
    let unreadable = &reports[0].partitions[0].unreadable_objects;
    assert_eq!(unreadable.len(), 1, "{unreadable:?}");
}

#[tokio::test]
async fn a_verification_can_be_spawned_and_dropped() {
    let archive = Archive::one_run(2).await;
    let mut store = ReadOnly::new(&archive.memory);
    store.latency = Box::new(|_| Duration::from_hours(1));
    let (reads, store) = store.shared();
    let task = tokio::spawn(async move { verify_archive(&store, &deep(), &trusted()).await });
    while reads.gets().is_empty() {
        tokio::task::yield_now().await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}
