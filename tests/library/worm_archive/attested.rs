//! Whose signatures count, what cannot be read, what is asked for, and what is proven.

use std::collections::BTreeSet;

use krabka_remote_storage::archive::{
    KeyLimit, VerifyBreakKind, VerifyDepth, VerifyRequest, WORM_PROBE_BODY, WORM_PROBE_NAME,
    authenticate_archive, verify_archive,
};
use krabka_remote_storage::{ManifestSeq, TrustedManifestKeys, WormError};

use super::store::ReadOnly;
use crate::support::archive::{
    Archive, KEY_ID, Key, PREFIX, assert_break, deep, epoch, partition, shallow, trusted,
};
use crate::support::with;

#[tokio::test]
async fn an_archive_outlives_its_keys() {
    let mut archive = Archive::one_run(2).await;
    let stamp = archive.segments[1].receipt.next_stamp().unwrap();
    let new_key = || Key::new("worm-key-2", 2);
    archive.seal("orders", 0, 200, stamp, new_key()).await;
    let only_old = archive.deep().await;
    assert_eq!(only_old.partitions[0].untrusted_manifests, 1);
    let keys = TrustedManifestKeys::from_pairs([
        (KEY_ID, Key::usual().public()),
        ("worm-key-2", new_key().public()),
    ]);
    let report = verify_archive(&archive.store(), &deep(), &keys)
        .await
        .unwrap();
    assert!(report.ok() && report.fully_attested());
    assert_eq!(report.manifests(), 3);
}

#[tokio::test]
async fn a_retired_key_with_a_limit_cannot_attest_what_comes_later() {
    let archive = Archive::one_run(3).await;
    let limit = |greatest_seq| KeyLimit {
        directory: archive.segments[0].directory().to_owned(),
        epoch_id: epoch(1),
        greatest_seq: ManifestSeq(greatest_seq),
    };
    for (keys, untrusted) in [
        (trusted().with_limit(KEY_ID, limit(2)), 0),
        (trusted().with_limit(KEY_ID, limit(1)), 1),
        (
            trusted().with_limit(
                KEY_ID,
                KeyLimit {
                    directory: "archive/other".to_owned(),
                    ..limit(9)
                },
            ),
            3,
        ),
    ] {
        let report = verify_archive(&archive.store(), &shallow(), &keys)
            .await
            .unwrap();
        assert_eq!(report.partitions[0].untrusted_manifests, untrusted);
        assert_eq!(report.ok(), untrusted == 0);
        assert_eq!(report.first_break(), None);
    }
}

#[tokio::test]
async fn without_trusted_keys_nothing_is_attested() {
    let archive = Archive::one_run(12).await;
    let report = verify_archive(
        &archive.store(),
        &shallow(),
        &TrustedManifestKeys::default(),
    )
    .await
    .unwrap();
    let partition = &report.partitions[0];
    assert_eq!(partition.untrusted_manifests, 12);
    let sample: Vec<_> = partition
        .unattested
        .iter()
        .map(|one| (one.manifest_key.as_str(), one.key_id.as_deref()))
        .collect();
    let first_ten: Vec<_> = archive.segments[..10]
        .iter()
        .map(|sealed| (sealed.manifest_key.as_str(), Some(KEY_ID)))
        .collect();
    assert_eq!(sample, first_ten);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_named_and_the_rest_stands() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let mut store = ReadOnly::new(&archive.memory);
    store.refused.insert(sealed.key(".index"));
    let (_, store) = store.shared();
    let report = verify_archive(&store, &shallow(), &trusted())
        .await
        .unwrap();
    assert!(report.ok(), "no body is read");
    let report = verify_archive(&store, &deep(), &trusted()).await.unwrap();
    assert!(!report.ok());
    assert_eq!(report.first_break(), None);
    assert_eq!(report.manifests(), 8);
    let partition = partition(&report, &sealed);
    assert_eq!(partition.objects_checked, 6 + 4 + 6 - 1);
    assert_eq!(partition.unreadable_objects.len(), 1);
    let unreadable = &partition.unreadable_objects[0];
    assert_eq!(unreadable.key, sealed.key(".index"));
    assert!(unreadable.reason.contains("403"));
    assert!(!unreadable.reason.contains(['\n', '\u{1b}']));
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_no_proof_of_a_gap() {
    let archive = Archive::one_run(4).await;
    let pins = archive.deep().await.positions();
    for at in 0..4 {
        let mut store = ReadOnly::new(&archive.memory);
        store
            .refused
            .insert(archive.segments[at].manifest_key.clone());
        let (_, store) = store.shared();
        for request in [shallow(), deep()] {
            let pinned = with(request, |it| it.expect_positions = Some(pins.clone()));
            let report = verify_archive(&store, &pinned, &trusted()).await.unwrap();
            assert!(!report.ok());
            assert_eq!(report.first_break(), None, "{report:#?}");
            assert_eq!(report.manifests(), 3);
            let unreadable = &report.partitions[0].unreadable_objects;
            assert_eq!(unreadable.len(), 1);
            assert_eq!(unreadable[0].key, archive.segments[at].manifest_key);
        }
    }
    // One unreadable manifest does not explain two missing ones.
    archive.remove_segment(1).await;
    let mut store = ReadOnly::new(&archive.memory);
    store
        .refused
        .insert(archive.segments[2].manifest_key.clone());
    let (_, store) = store.shared();
    let report = verify_archive(&store, &shallow(), &trusted())
        .await
        .unwrap();
    assert_break(
        &report,
        archive.segments[3].directory(),
        VerifyBreakKind::Sequence,
        &archive.segments[3].manifest_key,
    );
}

#[tokio::test]
async fn a_listing_that_fails_is_an_error_and_no_report() {
    let archive = Archive::sealed().await;
    let request = with(VerifyRequest::default(), |it| {
        it.prefix = Some("archive/../secret\n".to_owned());
    });
    let error = verify_archive(&archive.store(), &request, &trusted())
        .await
        .unwrap_err();
    let WormError::Archive(text) = error else {
        panic!("{error:?}");
    };
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn the_version_that_was_sealed_is_looked_for_beneath_a_changed_object() {
    let archive = Archive::one_run(1).await;
    archive
        .resign(0, |body| {
            for object in &mut body.objects {
                object.version_id = Some("v1".to_owned());
            }
        })
        .await;
    let sealed = archive.segments[0].clone();
    let key = sealed.key(".index");
    let original = archive.get(&key).await;
    let flipped = {
        let mut bytes = original.to_vec();
        bytes[0] ^= 1;
        bytes
    };
    let changes: [(VerifyBreakKind, Option<Vec<u8>>); 3] = [
        (VerifyBreakKind::Digest, Some(flipped.clone())),
        (VerifyBreakKind::Size, Some(b"x".to_vec())),
        (VerifyBreakKind::Missing, None),
    ];
    for (kind, change) in changes {
        let archive = archive.fork();
        match change {
            Some(bytes) => archive.put(&key, bytes).await,
            None => archive.delete(&key).await,
        }
        for (version, text) in [
            (Some(original.clone()), "is intact: it can be recovered"),
            (Some(flipped.clone().into()), "differs too"),
            (None, "is not there either"),
        ] {
            let mut store = ReadOnly::new(&archive.memory);
            if let Some(version) = version {
                store
                    .versions
                    .insert((key.clone(), "v1".to_owned()), version);
            }
            let (_, store) = store.shared();
            let report = verify_archive(&store, &deep(), &trusted()).await.unwrap();
            assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
            let reason = &report.first_break().unwrap().reason;
            assert!(
                reason.ends_with(&format!("the sealed version `v1` {text}")),
                "{reason}"
            );
        }
    }
}

#[tokio::test]
async fn filters_select_by_name() {
    let archive = Archive::sealed().await;
    for (topic, partition, dirs) in [
        (Some("orders"), None, 2),
        (Some("orders"), Some(1), 1),
        (None, Some(0), 2),
        (Some("order"), None, 0),
        (Some("payments"), Some(1), 0),
    ] {
        let request = with(deep(), |it| {
            it.topic = topic.map(str::to_owned);
            it.partition = partition;
        });
        let report = archive.verify(&request).await;
        assert!(report.ok());
        assert_eq!(report.partitions.len(), dirs, "{topic:?} {partition:?}");
    }
}

#[tokio::test]
async fn a_filter_hides_no_damage() {
    let archive = Archive::sealed().await;
    let payments = with(deep(), |it| it.topic = Some("payments".to_owned()));
    // The only manifest of the topic is unreadable text: its directory's name still counts.
    let sealed = archive.segments[7].clone();
    let damaged = archive.fork();
    damaged.put(&sealed.manifest_key, "x").await;
    let report = damaged.verify(&payments).await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Decode,
        &sealed.manifest_key,
    );
    // Without any manifest too.
    damaged.delete(&sealed.manifest_key).await;
    let report = damaged.verify(&payments).await;
    assert!(!report.ok());
    assert_eq!(report.partitions[0].orphan_objects.len(), 4);
    // A manifest of the topic elsewhere makes that directory one of the topic.
    let orders = archive.segments[0].directory();
    let moved = archive.fork();
    let key = sealed.manifest_key.replace(sealed.directory(), orders);
    moved.rename(&sealed.manifest_key, &key).await;
    let report = moved.verify(&payments).await;
    assert_eq!(report.partitions.len(), 2);
    assert_eq!(
        report.first_break().map(|b| b.kind),
        Some(VerifyBreakKind::Misplaced)
    );
    // And what is outside of all partitions is reported under any filter.
    archive.put("archive/note", "x").await;
    assert_eq!(
        archive.verify(&payments).await.global_orphan_objects,
        ["archive/note"]
    );
}

#[tokio::test]
async fn a_filter_leaves_pins_of_other_partitions_aside() {
    let archive = Archive::sealed().await;
    let pins = archive.shallow().await.positions();
    let request = with(shallow(), |it| {
        it.topic = Some("orders".to_owned());
        it.expect_positions = Some(pins);
    });
    archive.remove_segment(7).await;
    assert!(archive.verify(&request).await.ok());
    let orders = archive.segments[0].directory().to_owned();
    for key in archive.keys(&orders).await {
        archive.delete(&key).await;
    }
    let report = archive.verify(&request).await;
    assert_break(&report, &orders, VerifyBreakKind::Tip, &orders);
}

#[tokio::test]
async fn an_expected_head_is_every_partitions_tip() {
    let archive = Archive::sealed().await;
    let sealed = &archive.segments[7];
    let request = with(shallow(), |it| {
        it.topic = Some("payments".to_owned());
        it.expect_head = sealed.receipt.head;
    });
    assert!(archive.verify(&request).await.ok());
    let everywhere = with(request.clone(), |it| it.topic = None);
    let report = archive.verify(&everywhere).await;
    let tips = report
        .partitions
        .iter()
        .map(|p| p.first_break.as_ref().map(|b| b.kind));
    let tip = Some(VerifyBreakKind::Tip);
    assert_eq!(tips.collect::<Vec<_>>(), [tip, tip, None]);
    // Nothing accepted: the head before the first manifest.
    archive.delete(&sealed.manifest_key).await;
    let genesis = with(request.clone(), |it| {
        it.expect_head = Some(krabka_remote_storage::ChainHead::GENESIS);
    });
    assert_eq!(archive.verify(&genesis).await.first_break(), None);
    let report = archive.verify(&request).await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Tip,
        sealed.directory(),
    );
}

#[tokio::test]
async fn objects_proven_elsewhere_are_no_orphans_unless_they_look_like_the_archives_own() {
    let archive = Archive::one_run(1).await;
    let directory = archive.segments[0].directory().to_owned();
    let stem = archive.segments[0].key("");
    let segment_like = stem.rsplit_once('/').unwrap().1;
    let exempt = [
        "archive/catalog.json".to_owned(),
        format!("{directory}/catalog.json"),
    ];
    let never = [
        "archive/x.manifest".to_owned(),
        format!("archive/{segment_like}.log"),
    ];
    let inputs = "archive/restore-inputs/a/b".to_owned();
    let input_like = format!("archive/restore-inputs/{segment_like}.log");
    let nearly = "archive/restore-inputs.txt".to_owned();
    for key in exempt
        .iter()
        .chain(&never)
        .chain([&inputs, &input_like, &nearly])
    {
        archive.put(key, "x").await;
    }
    let request = with(shallow(), |it| {
        it.externally_authenticated_objects = exempt.iter().chain(&never).cloned().collect();
    });
    let report = archive.verify(&request).await;
    assert_eq!(report.first_break(), None);
    assert!(report.partitions[0].orphan_objects.is_empty());
    let found: BTreeSet<_> = report.global_orphan_objects.iter().collect();
    assert_eq!(found, never.iter().chain([&input_like, &nearly]).collect());
    assert!(report.global_orphan_objects.is_sorted());
}

#[tokio::test]
async fn the_probe_of_a_writers_self_test_is_known_by_its_place_and_its_bytes() {
    let archive = Archive::one_run(1).await;
    let key = format!("{PREFIX}/{WORM_PROBE_NAME}");
    archive.put(&key, WORM_PROBE_BODY).await;
    assert!(archive.shallow().await.ok());
    // Also where the prefix that it was written under is not given.
    assert!(archive.verify(&VerifyRequest::default()).await.ok());
    for body in ["", "krabka-worm-probe v1", "krabka-worm-probe v2\n"] {
        let archive = archive.fork();
        archive.put(&key, body).await;
        assert_eq!(
            archive.shallow().await.global_orphan_objects,
            [key.as_str()]
        );
    }
    let elsewhere = format!("{PREFIX}/deeper/{WORM_PROBE_NAME}");
    archive.put(&elsewhere, WORM_PROBE_BODY).await;
    assert_eq!(archive.shallow().await.global_orphan_objects, [elsewhere]);
}

#[tokio::test]
async fn objects_are_proven_by_trusted_manifests_of_unbroken_partitions() {
    let archive = Archive::sealed().await;
    let authenticated = authenticate_archive(&archive.store(), &shallow(), &trusted())
        .await
        .unwrap();
    assert!(authenticated.report().ok());
    let expected: BTreeSet<_> = archive
        .segments
        .iter()
        .flat_map(|sealed| &sealed.manifest.body.objects)
        .map(|object| &object.key)
        .collect();
    assert_eq!(
        authenticated.objects().keys().collect::<BTreeSet<_>>(),
        expected
    );
    for (key, object) in authenticated.objects() {
        assert_eq!(&object.key, key);
    }

    // Deep, whatever the request says: a flipped byte takes its whole partition out.
    archive
        .put(&archive.segments[1].key(".log"), "flipped!")
        .await;
    // A manifest that nobody trusted signs takes its objects out.
    let sealed = archive.segments[6].clone();
    let untrusted = Key::new("someone", 2).sign(sealed.manifest.body.clone());
    archive.put_manifest(&sealed.manifest_key, &untrusted).await;
    // As does a body that cannot be read.
    let unreadable = archive.segments[7].key(".index");
    let mut store = ReadOnly::new(&archive.memory);
    store.refused.insert(unreadable.clone());
    let (_, store) = store.shared();
    let authenticated = authenticate_archive(&store, &shallow(), &trusted())
        .await
        .unwrap();
    let orders = archive.segments[0].directory();
    let proven: BTreeSet<_> = authenticated.objects().keys().collect();
    let expected: BTreeSet<_> = expected
        .into_iter()
        .filter(|key| !key.starts_with(orders))
        .filter(|key| !key.starts_with(&sealed.key("")))
        .filter(|key| **key != unreadable)
        .collect();
    assert_eq!(proven, expected);
}

#[tokio::test]
async fn a_report_says_what_a_break_is_in_one_line() {
    let archive = Archive::sealed().await;
    let sealed = &archive.segments[1];
    archive.delete(&sealed.key(".index")).await;
    let report = archive.shallow().await;
    assert_eq!(
        report.first_break().unwrap().to_string(),
        format!(
            "{} (seq 1): missing: `{}` is not there",
            sealed.manifest_key,
            sealed.key(".index")
        )
    );
    archive.put(&sealed.manifest_key, "x").await;
    let text = archive.shallow().await.first_break().unwrap().to_string();
    assert!(
        text.starts_with(&format!("{} (seq unknown): decode: ", sealed.manifest_key)),
        "{text}"
    );
}

#[tokio::test]
async fn at_depth_only_listed_keys_are_read() {
    let archive = Archive::sealed().await;
    let secret = "tenant/secret";
    archive.put(secret, "secret").await;
    archive.delete(&archive.segments[0].key(".index")).await;
    let named = archive.segments[0].key(".index");
    let (reads, store) = ReadOnly::new(&archive.memory).shared();
    let request = with(shallow(), |it| it.depth = VerifyDepth::Deep);
    verify_archive(&store, &request, &trusted()).await.unwrap();
    let listed: BTreeSet<_> = archive.keys("archive/").await.into_iter().collect();
    assert!(reads.gets().iter().all(|key| listed.contains(key)));
    assert_eq!(reads.gets_of(&named), 0);
}
