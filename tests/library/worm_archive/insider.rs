//! What someone does who has the bucket to himself, and wants the archive to look as it was.

use krabka_remote_storage::archive::{
    ArchiveVerifyReport, GradeRules, KeyLimit, Verdict, VerifyBreakKind, VerifyRequest,
    verify_archive,
};
use krabka_remote_storage::{
    ChainStamp, ManifestSeq, TrustedManifestKeys, WormChainRecord, manifest_head,
};

use crate::support::archive::{
    Archive, KEY_ID, Key, PREFIX, Sealed, assert_break, assert_verdict, deep, epoch, metadata,
    partition, trusted,
};
use crate::support::with;

async fn pins_of(archive: &Archive) -> VerifyRequest {
    let positions = archive.deep().await.positions();
    with(deep(), |it| it.expect_positions = Some(positions))
}

fn verdict(report: &ArchiveVerifyReport) -> Verdict {
    GradeRules::default().grade(report, Ok(&[])).verdict
}

/// Moves every object of a directory.
async fn move_directory(archive: &Archive, from: &str, to: &str) {
    for key in archive.keys(&format!("{from}/")).await {
        archive.rename(&key, &key.replace(from, to)).await;
    }
}

#[tokio::test]
async fn a_name_that_only_looks_like_an_objects_is_not_that_object() {
    use VerifyBreakKind::{Count, Missing};
    let archive = Archive::one_run(2).await;
    let sealed = &archive.segments[1];
    let log = sealed.key(".log");
    let stem = sealed.key("");
    let same_stem = [
        ".LOG",
        ".log ",
        ".log.",
        ".log.gz",
        "==.log",
        ".l\u{43e}g",
        ".log\u{200b}",
    ];
    for suffix in same_stem {
        let name = format!("{stem}{suffix}");
        let renamed = archive.fork();
        renamed.rename(&log, &name).await;
        let report = renamed.deep().await;
        assert_break(&report, sealed.directory(), Missing, &sealed.manifest_key);

        let beside = archive.fork();
        beside.put(&name, "x").await;
        let report = beside.deep().await;
        assert_break(&report, sealed.directory(), Count, &sealed.manifest_key);
    }
    let id = "AAAAAAAAAAAAAAAAAABQAQ";
    assert!(log.contains(id), "{log}");
    let other_stems = [
        // The same id with other unused bits, of another case.
        log.replace(id, "AAAAAAAAAAAAAAAAAABQAR"),
        log.replace(id, "aaaaaaaaaaaaaaaaaabqaq"),
        log.replace("00000000000000000100", "100"),
        log.replace("00000000000000000100", "+0000000000000000100"),
        log.replace("00000000000000000100", "\u{ff10}000000000000000100"),
    ];
    for name in other_stems {
        assert_ne!(name, log);
        let renamed = archive.fork();
        renamed.rename(&log, &name).await;
        let report = renamed.deep().await;
        assert_break(&report, sealed.directory(), Missing, &sealed.manifest_key);

        let beside = archive.fork();
        beside.put(&name, archive.get(&log).await).await;
        let report = beside.deep().await;
        assert_verdict(&report, Verdict::Orphans);
        assert_eq!(partition(&report, sealed).orphan_objects[0].key, name);
    }
}

#[tokio::test]
async fn a_directory_that_only_looks_like_a_partitions_is_not_that_partition() {
    let archive = Archive::sealed().await;
    let pins = pins_of(&archive).await;
    let directory = archive.segments[0].directory();
    let id = directory.strip_prefix("archive/orders-0-").unwrap();
    for other in [
        format!("ORDERS-0-{id}"),
        format!("orders-00-{id}"),
        format!("orders-+0-{id}"),
        format!("orders-\u{ff10}-{id}"),
        format!("order\u{455}-0-{id}"),
        format!("orders-0-{id}="),
        format!("orders-0-{id} "),
        format!("orders-0-{}", id.to_lowercase()),
        format!("x/orders-0-{id}"),
        format!("orders-0-{id}/orders-0-{id}"),
    ] {
        let moved = archive.fork();
        move_directory(&moved, directory, &format!("{PREFIX}/{other}")).await;
        let report = moved.deep().await;
        assert!(!report.ok(), "{other}");
        assert!(
            matches!(verdict(&report), Verdict::Tamper | Verdict::Orphans),
            "{other}: {report:#?}"
        );
        let report = moved.verify(&pins).await;
        let lost = report
            .partitions
            .iter()
            .find(|p| p.partition_dir == directory);
        let found = lost.and_then(|partition| partition.first_break.as_ref());
        assert_eq!(
            found.map(|found| found.kind),
            Some(VerifyBreakKind::Tip),
            "{other}"
        );
    }
}

#[tokio::test]
async fn a_copy_of_a_partition_elsewhere_is_no_second_archive() {
    let archive = Archive::one_run(2).await;
    let sealed = &archive.segments[0];
    let directory = sealed.directory();
    for to in ["archive/backup", "archive/deep/er"] {
        let copied = archive.fork();
        let place = directory.replace(PREFIX, to);
        for key in archive.keys(directory).await {
            copied
                .put(&key.replace(directory, &place), archive.get(&key).await)
                .await;
        }
        let report = copied.deep().await;
        let manifest_key = sealed.manifest_key.replace(directory, &place);
        assert_break(&report, &place, VerifyBreakKind::Misplaced, &manifest_key);
    }
    // Nor does another topic's name make one of it.
    let copied = archive.fork();
    let place = directory.replace("orders", "evil");
    for key in archive.keys(directory).await {
        copied
            .put(&key.replace(directory, &place), archive.get(&key).await)
            .await;
    }
    let report = copied.deep().await;
    let manifest_key = sealed.manifest_key.replace(directory, &place);
    assert_break(&report, &place, VerifyBreakKind::Misplaced, &manifest_key);
}

#[tokio::test]
async fn markers_of_directories_and_objects_below_a_partition_are_orphans() {
    let archive = Archive::one_run(1).await;
    let directory = archive.segments[0].directory();
    for key in [
        // What consoles write for a folder, as stores list it.
        directory.to_owned(),
        format!("{directory}/sub/00000000000000000000-AAAAAAAAAAAAAAAAAABQAA.log"),
        format!("{PREFIX}/orders-0"),
        format!("{PREFIX}/.krabka-worm-probe2"),
    ] {
        let planted = archive.fork();
        planted.put(&key, "").await;
        let report = planted.deep().await;
        assert_verdict(&report, Verdict::Orphans);
        assert_eq!(report.global_orphan_objects, [key]);
    }
}

#[tokio::test]
async fn a_manifest_that_says_the_same_in_other_bytes_is_not_the_one_that_was_sealed() {
    use VerifyBreakKind::{Decode, Encoding};
    let archive = Archive::one_run(2).await;
    let sealed = &archive.segments[1];
    let text = String::from_utf8(archive.get(&sealed.manifest_key).await.to_vec()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let replaced = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    };
    for (other, kind) in [
        (serde_json::to_string(&value).unwrap(), Encoding),
        (serde_json::to_string_pretty(&value).unwrap(), Encoding),
        (format!("{text}\n"), Encoding),
        (format!(" {text}"), Encoding),
        (
            replaced("\"topic\":\"orders\"", "\"topic\":\"\\u006frders\""),
            Encoding,
        ),
        (
            replaced("\"topic\":\"orders\"", "\"t\\u006fpic\":\"orders\""),
            Encoding,
        ),
        (
            replaced(
                "\"txn_index_empty\":false",
                "\"txn_index_empty\":false,\"txn_index_empty\":false",
            ),
            Decode,
        ),
        (
            replaced(
                "\"topic\":\"orders\"",
                "\"topic\":\"evil\",\"topic\":\"orders\"",
            ),
            Decode,
        ),
        (replaced("\"partition\":0", "\"partition\":0.0"), Decode),
        (replaced("\"partition\":0", "\"partition\":-0"), Decode),
        (
            replaced("\"partition\":0", "\"partition\":0,\"note\":null"),
            Decode,
        ),
        (format!("\u{feff}{text}"), Decode),
        (format!("{text}{text}"), Decode),
        (format!("{text}\0"), Decode),
    ] {
        let fork = archive.fork();
        fork.put(&sealed.manifest_key, other).await;
        let report = fork.deep().await;
        assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
    }
}

/// Seals a whole archive anew, over other content, with this key.
async fn seal_anew(archive: &Archive, segments: &[Sealed], key: &Key) {
    let mut prev: Option<WormChainRecord> = None;
    for sealed in segments {
        let mut body = sealed.manifest.body.clone();
        body.segment.max_timestamp_ms -= 1;
        if let Some(stamp) = prev.as_ref().and_then(WormChainRecord::next_stamp) {
            body.chain = stamp;
        }
        prev = Some(WormChainRecord::request(body.chain).with_head(manifest_head(&body)));
        archive
            .put_manifest(&sealed.manifest_key, &key.sign(body))
            .await;
    }
}

async fn report(
    archive: &Archive,
    request: &VerifyRequest,
    keys: &TrustedManifestKeys,
) -> ArchiveVerifyReport {
    verify_archive(&archive.store(), request, keys)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_archive_sealed_anew_with_a_retired_key_is_found_with_pins_or_a_limit() {
    let mut archive = Archive::empty();
    let retired = || Key::new("retired", 7);
    let start = ChainStamp::genesis(epoch(1));
    let first = archive.seal("orders", 0, 0, start, retired()).await;
    let stamp = first.receipt.next_stamp().unwrap();
    archive.seal("orders", 0, 100, stamp, Key::usual()).await;
    let keys = || {
        TrustedManifestKeys::from_pairs([
            ("retired", retired().public()),
            (KEY_ID, Key::usual().public()),
        ])
    };
    let limited = keys().with_limit(
        "retired",
        KeyLimit {
            directory: first.directory().to_owned(),
            epoch_id: epoch(1),
            greatest_seq: ManifestSeq(0),
        },
    );
    let honest = report(&archive, &deep(), &limited).await;
    assert_verdict(&honest, Verdict::Ok);
    let pins = with(deep(), |it| it.expect_positions = Some(honest.positions()));

    let forged = archive.fork();
    seal_anew(&forged, &archive.segments, &retired()).await;
    assert_verdict(&report(&forged, &deep(), &keys()).await, Verdict::Ok);
    assert_verdict(
        &report(&forged, &deep(), &limited).await,
        Verdict::Attestation,
    );
    assert_verdict(
        &report(&forged, &pins, &keys()).await,
        Verdict::HeadMismatch,
    );
}

#[tokio::test]
async fn an_older_state_of_everything_is_found_with_pins() {
    let mut archive = Archive::sealed().await;
    let old = archive.fork();
    for (at, partition) in [(2, 0), (6, 1)] {
        let last = archive.segments[at].clone();
        let stamp = last.receipt.next_stamp().unwrap();
        let start = last.metadata.start_offset() + 100;
        archive
            .seal("orders", partition, start, stamp, Key::usual())
            .await;
    }
    let pins = pins_of(&archive).await;
    let report = old.verify(&pins).await;
    assert_verdict(&report, Verdict::HeadMismatch);
    let broken = report.partitions.iter().filter(|p| p.first_break.is_some());
    assert_eq!(broken.count(), 2, "those that had grown");
}

#[tokio::test]
async fn objects_and_manifests_of_nobody_attest_nothing() {
    // A partition of its own, sealed by a stranger and by nobody.
    let stamp = ChainStamp::genesis(epoch(8));
    let mut archive = Archive::one_run(1).await;
    let stranger = Key::new("me", 5);
    let planted = archive.seal("planted", 0, 0, stamp, stranger).await;
    assert_verdict(&archive.deep().await, Verdict::Attestation);
    let mut manifest = planted.manifest.clone();
    manifest.signature = None;
    archive.put_manifest(&planted.manifest_key, &manifest).await;
    assert_verdict(&archive.deep().await, Verdict::Attestation);
    // Objects without any manifest.
    let archive = Archive::one_run(1).await;
    archive
        .upload(&metadata("planted", 0, 0, 0x99, stamp))
        .await;
    assert_verdict(&archive.deep().await, Verdict::Orphans);
    // All signatures taken away.
    let archive = Archive::one_run(3).await;
    for sealed in &archive.segments {
        let mut manifest = sealed.manifest.clone();
        manifest.signature = None;
        archive.put_manifest(&sealed.manifest_key, &manifest).await;
    }
    assert_verdict(&archive.deep().await, Verdict::Attestation);
    let report = verify_archive(&archive.store(), &pins_of(&archive).await, &trusted())
        .await
        .unwrap();
    assert_verdict(&report, Verdict::Attestation);
    // Everything taken away.
    let archive = Archive::one_run(1).await;
    let pins = pins_of(&archive).await;
    archive.remove_segment(0).await;
    assert_verdict(&archive.deep().await, Verdict::Empty);
    assert_verdict(&archive.verify(&pins).await, Verdict::HeadMismatch);
}
