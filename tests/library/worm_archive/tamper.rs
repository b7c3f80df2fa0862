//! Tampering with manifests, runs and directories, at both depths.

use krabka_remote_storage::archive::{VerifyBreakKind, VerifyDepth, VerifyRequest};
use krabka_remote_storage::{ChainHead, ManifestSeq, SegmentManifest};

use crate::support::archive::{Archive, Key, assert_break, deep, epoch, partition, shallow};
use crate::support::with;

fn both() -> [VerifyRequest; 2] {
    [shallow(), deep()]
}

#[tokio::test]
async fn a_sealed_archive_is_ok_and_its_report_says_what_is_in_it() {
    let archive = Archive::sealed().await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert!(report.ok(), "{report:#?}");
        assert!(report.fully_attested());
        assert!(report.has_epoch_restarts());
        assert_eq!(report.manifests(), 8);
        assert_eq!(report.first_break(), None);
        let dirs: Vec<_> = report
            .partitions
            .iter()
            .map(|partition| partition.partition_dir.as_str())
            .collect();
        assert_eq!(
            dirs,
            [
                "archive/orders-0-AAAAAAAAAAAAAAAAAAAAbw",
                "archive/orders-1-AAAAAAAAAAAAAAAAAAAAbw",
                "archive/payments-0-AAAAAAAAAAAAAAAAAAAAcA"
            ]
        );
        let two_runs = &report.partitions[1];
        assert_eq!((two_runs.manifests, two_runs.runs), (4, 2));
        // Two segments with four objects, two with six.
        assert_eq!(two_runs.objects_checked, 20);
        assert_eq!(two_runs.bucket_retention_objects.count, 4);
        assert_eq!(two_runs.create_precondition_objects.count, 16);
        assert_eq!(two_runs.create_precondition_objects.sample.len(), 10);
        assert_eq!(two_runs.unknown_protection_objects.count, 0);
        assert_eq!(
            two_runs.bucket_retention_objects.sample[0],
            archive.segments[3].key(".log")
        );
        let spans: Vec<_> = two_runs
            .epochs
            .iter()
            .map(|span| (span.epoch_id, span.first_seq, span.last_seq, span.manifests))
            .collect();
        assert_eq!(
            spans,
            [
                (epoch(2), ManifestSeq(0), ManifestSeq(1), 2),
                (epoch(3), ManifestSeq(0), ManifestSeq(1), 2)
            ]
        );
        assert_eq!(
            (
                two_runs.epochs[1].start_offset,
                two_runs.epochs[1].end_offset
            ),
            (200, 399)
        );
        assert_eq!(two_runs.head, archive.segments[6].receipt.head);
        assert!(two_runs.offset_gaps.is_empty() && two_runs.offset_overlaps.is_empty());
        assert_eq!(archive.verify(&request).await, report);
    }
}

#[tokio::test]
async fn a_head_that_does_not_follow_is_found_though_it_is_signed() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    archive
        .resign(1, |body| body.chain.prev_head = ChainHead([9; 32]))
        .await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            sealed.directory(),
            VerifyBreakKind::Head,
            &sealed.manifest_key,
        );
    }
}

#[tokio::test]
async fn a_tail_that_was_cut_off_is_found_with_what_was_written_down_before() {
    let archive = Archive::one_run(3).await;
    let before = archive.shallow().await;
    let sealed = archive.segments[1].clone();
    archive.remove_segment(2).await;
    for request in both() {
        assert!(archive.verify(&request).await.ok(), "nothing shows it");
        for request in [
            with(request.clone(), |it| {
                it.expect_head = before.partitions[0].head;
            }),
            with(request.clone(), |it| {
                it.expect_positions = Some(before.positions());
            }),
        ] {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Tip,
                &sealed.manifest_key,
            );
        }
    }
}

#[tokio::test]
async fn a_middle_manifest_that_was_removed_is_found() {
    let archive = Archive::one_run(3).await;
    let next = archive.segments[2].clone();
    for with_objects in [false, true] {
        let archive = archive.fork();
        if with_objects {
            archive.remove_segment(1).await;
        } else {
            archive.delete(&archive.segments[1].manifest_key).await;
        }
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                next.directory(),
                VerifyBreakKind::Sequence,
                &next.manifest_key,
            );
        }
    }
}

#[tokio::test]
async fn a_run_without_its_beginning_is_found() {
    let archive = Archive::one_run(3).await;
    archive.remove_segment(0).await;
    let next = &archive.segments[1];
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            next.directory(),
            VerifyBreakKind::Sequence,
            &next.manifest_key,
        );
        assert_eq!(report.partitions[0].runs, 1);
        assert!(report.partitions[0].epochs.is_empty());
    }
}

#[tokio::test]
async fn a_signature_by_another_key_under_a_trusted_name_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let other = Key::new(crate::support::archive::KEY_ID, 66);
    let resigned = other.sign(sealed.manifest.body.clone());
    let mut renamed = sealed.manifest.clone();
    renamed.signature.as_mut().unwrap().public_key = (&other.public()).into();
    // By another key, with the trusted one beside it.
    let mut disguised = resigned.clone();
    disguised.signature.as_mut().unwrap().public_key = (&Key::usual().public()).into();
    for manifest in [resigned, renamed, disguised] {
        let archive = archive.fork();
        archive.put_manifest(&sealed.manifest_key, &manifest).await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Signature,
                &sealed.manifest_key,
            );
        }
    }
}

#[tokio::test]
async fn a_forged_signature_goes_before_an_earlier_break_of_the_chain() {
    let archive = Archive::one_run(4).await;
    let forged = archive.segments[3].clone();
    let manifest = Key::new(crate::support::archive::KEY_ID, 66).sign(forged.manifest.body.clone());
    archive.put_manifest(&forged.manifest_key, &manifest).await;
    archive.remove_segment(1).await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            forged.directory(),
            VerifyBreakKind::Signature,
            &forged.manifest_key,
        );
        assert_eq!(
            report.partitions[0].manifests, 1,
            "the walk stopped earlier"
        );
    }
}

#[tokio::test]
async fn what_no_trusted_key_signs_is_counted_and_not_ok() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[6].clone();
    let unsigned = SegmentManifest {
        signature: None,
        ..sealed.manifest.clone()
    };
    let untrusted = Key::new("someone", 2).sign(sealed.manifest.body.clone());
    for (manifest, key_id) in [(unsigned, None), (untrusted, Some("someone"))] {
        let archive = archive.fork();
        archive.put_manifest(&sealed.manifest_key, &manifest).await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert!(!report.ok() && !report.fully_attested());
            assert_eq!(report.first_break(), None);
            let partition = partition(&report, &sealed);
            let counts = (partition.unsigned_manifests, partition.untrusted_manifests);
            assert_eq!(counts, if key_id.is_none() { (1, 0) } else { (0, 1) });
            assert_eq!(partition.manifests, 4);
            assert_eq!(partition.unattested.len(), 1);
            assert_eq!(partition.unattested[0].manifest_key, sealed.manifest_key);
            assert_eq!(partition.unattested[0].key_id.as_deref(), key_id);
        }
    }
}

#[tokio::test]
async fn a_second_run_is_no_break_and_shows() {
    let mut archive = Archive::one_run(2).await;
    archive.seal_run("orders", 0, epoch(9), 200, 2).await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert!(report.ok() && report.has_epoch_restarts());
        assert_eq!(report.partitions[0].epochs.len(), 2);
        assert_eq!(report.partitions[0].runs, 2);
        let allowed = with(request, |it| it.allow_epoch_restarts = true);
        assert_eq!(archive.verify(&allowed).await, report);
    }
}

#[tokio::test]
async fn a_manifest_that_is_not_where_it_says_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let other = archive.segments[2].clone();

    let renamed = archive.fork();
    let key = sealed.manifest_key.replace("0100-", "0150-");
    renamed.rename(&sealed.manifest_key, &key).await;
    let odd = archive.fork();
    let odd_key = format!("{}/odd.manifest", sealed.directory());
    odd.rename(&sealed.manifest_key, &odd_key).await;
    let exchanged = archive.fork();
    let bytes = exchanged.get(&sealed.manifest_key).await;
    exchanged
        .rename(&other.manifest_key, &sealed.manifest_key)
        .await;
    exchanged.put(&other.manifest_key, bytes).await;
    for request in both() {
        for (archive, key) in [
            (&renamed, &key),
            (&odd, &odd_key),
            (&exchanged, &sealed.manifest_key),
        ] {
            let report = archive.verify(&request).await;
            assert_break(&report, sealed.directory(), VerifyBreakKind::Misplaced, key);
            let partition = partition(&report, &sealed);
            assert_eq!((partition.manifests, partition.head), (0, None));
        }
    }
}

#[tokio::test]
async fn a_partition_under_another_name_is_found() {
    let archive = Archive::sealed().await;
    for to in [
        "archive/orders-7-AAAAAAAAAAAAAAAAAAAAbw",
        "archive/order-0-AAAAAAAAAAAAAAAAAAAAbw",
        "archive/orders-0-AAAAAAAAAAAAAAAAAAAAbg",
        "elsewhere/orders-0-AAAAAAAAAAAAAAAAAAAAbw",
    ] {
        let archive = archive.fork();
        let from = archive.segments[0].directory();
        for key in archive.keys(from).await {
            archive.rename(&key, &key.replace(from, to)).await;
        }
        for request in both() {
            let request = with(request, |it| it.prefix = None);
            let report = archive.verify(&request).await;
            let first = archive.segments[0].manifest_key.replace(from, to);
            assert_break(&report, to, VerifyBreakKind::Misplaced, &first);
        }
    }
}

#[tokio::test]
async fn a_manifest_in_another_partitions_directory_is_found() {
    let archive = Archive::sealed().await;
    let (sealed, elsewhere) = (archive.segments[0].clone(), archive.segments[7].clone());
    let key = sealed
        .manifest_key
        .replace(sealed.directory(), elsewhere.directory());
    archive
        .put(&key, archive.get(&sealed.manifest_key).await)
        .await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            elsewhere.directory(),
            VerifyBreakKind::Misplaced,
            &key,
        );
    }
}

#[tokio::test]
async fn runs_and_partitions_that_were_removed_are_found_with_pins_alone() {
    let archive = Archive::sealed().await;
    let pins = archive.shallow().await.positions();
    let first_run = archive.fork();
    first_run.remove_segment(3).await;
    first_run.remove_segment(4).await;
    let last_run = archive.fork();
    last_run.remove_segment(5).await;
    last_run.remove_segment(6).await;
    let partition = archive.fork();
    partition.remove_segment(7).await;
    let payments = archive.segments[7].directory().to_owned();
    let orders = archive.segments[3].directory().to_owned();
    for request in both() {
        for (archive, directory, key) in [
            (&first_run, &orders, &archive.segments[6].manifest_key),
            (&last_run, &orders, &archive.segments[4].manifest_key),
            (&partition, &payments, &payments),
        ] {
            assert!(archive.verify(&request).await.ok(), "nothing shows it");
            let pinned = with(request.clone(), |it| {
                it.expect_positions = Some(pins.clone());
            });
            let report = archive.verify(&pinned).await;
            assert_break(&report, directory, VerifyBreakKind::Tip, key);
        }
    }
}

#[tokio::test]
async fn pins_allow_an_archive_to_grow() {
    let mut archive = Archive::sealed().await;
    let positions = archive.deep().await.positions();
    let pinned = with(deep(), |it| it.expect_positions = Some(positions));
    assert!(archive.verify(&pinned).await.ok());
    let next = archive.segments[2].receipt.next_stamp().unwrap();
    archive.seal("orders", 0, 300, next, Key::usual()).await;
    archive.seal_run("orders", 5, epoch(8), 0, 1).await;
    let report = archive.verify(&pinned).await;
    assert!(report.ok(), "{report:#?}");
}

#[tokio::test]
async fn a_manifest_in_another_spelling_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let json = String::from_utf8(archive.get(&sealed.manifest_key).await.to_vec()).unwrap();
    for (from, to) in [
        (r#""sha256":"#, r#""sha256": "#),
        (r#""topic":"orders""#, r#""topic":"\u006frders""#),
        (r#""partition":0,"#, "\"partition\":0\n,"),
    ] {
        let archive = archive.fork();
        assert!(json.contains(from));
        archive
            .put(&sealed.manifest_key, json.replacen(from, to, 1))
            .await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Encoding,
                &sealed.manifest_key,
            );
        }
    }
}

#[tokio::test]
async fn another_format_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    for version in [1, 3] {
        let archive = archive.fork();
        archive
            .resign(1, |body| body.format_version = version)
            .await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Format,
                &sealed.manifest_key,
            );
            let first_break = report.first_break().unwrap();
            assert_eq!(first_break.seq, Some(ManifestSeq(1)));
            assert_eq!(first_break.reason.contains("format 1 "), version == 1);
        }
    }
}

#[tokio::test]
async fn a_fork_is_told_from_a_second_claim_to_a_position() {
    let mut archive = Archive::one_run(3).await;
    let stamp = archive.segments[1].manifest.body.chain;
    let fork = archive.fork();
    // Sealed by a second writer on the same manifest.
    let second = archive.seal("orders", 0, 300, stamp, Key::usual()).await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            second.directory(),
            VerifyBreakKind::Fork,
            &second.manifest_key,
        );
    }
    // Planted without the key: the honest one keeps its place.
    let mut archive = fork;
    let planted = archive
        .seal("orders", 0, 50, stamp, Key::new("someone", 2))
        .await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            planted.directory(),
            VerifyBreakKind::DuplicatePosition,
            &planted.manifest_key,
        );
        assert_eq!(report.partitions[0].manifests, 2);
        assert_eq!(report.partitions[0].untrusted_manifests, 0);
    }
}

#[tokio::test]
async fn gaps_and_overlaps_of_offsets_are_information() {
    let mut archive = Archive::one_run(2).await;
    archive.seal_run("orders", 0, epoch(9), 150, 1).await;
    archive.seal_run("orders", 0, epoch(10), 400, 1).await;
    let report = archive.shallow().await;
    assert!(report.ok());
    let partition = &report.partitions[0];
    assert_eq!(partition.offset_gaps.len(), 1);
    assert_eq!(
        (
            partition.offset_gaps[0].after,
            partition.offset_gaps[0].before
        ),
        (249, 400)
    );
    assert_eq!(partition.offset_overlaps.len(), 1);
    assert_eq!(
        (
            partition.offset_overlaps[0].first,
            partition.offset_overlaps[0].last
        ),
        (150, 199)
    );
}

#[tokio::test]
async fn of_several_rejected_manifests_the_lowest_key_is_reported() {
    let archive = Archive::one_run(3).await;
    archive.put(&archive.segments[2].manifest_key, "x").await;
    archive.put(&archive.segments[1].manifest_key, "x").await;
    let report = archive.deep().await;
    assert_break(
        &report,
        archive.segments[1].directory(),
        VerifyBreakKind::Decode,
        &archive.segments[1].manifest_key,
    );
    // What rejected manifests name is unnamed.
    assert_eq!(report.partitions[0].orphan_objects.len(), 10);
    assert_eq!(report.partitions[0].objects_checked, 0);
    assert_eq!(report.partitions[0].runs, 0);
}

#[tokio::test]
async fn nothing_at_all_is_ok_and_a_wrong_prefix_looks_the_same() {
    for archive in [Archive::empty(), Archive::sealed().await] {
        let request = with(deep(), |it| it.prefix = Some("elsewhere".to_owned()));
        let report = archive.verify(&request).await;
        assert!(report.ok() && report.partitions.is_empty());
    }
}

#[tokio::test]
async fn a_prefix_is_whole_components_with_or_without_slashes() {
    let archive = Archive::sealed().await;
    archive.put("archived/x", "foreign").await;
    for prefix in ["archive", "/archive/", "archive//"] {
        let request = with(shallow(), |it| it.prefix = Some(prefix.to_owned()));
        assert!(archive.verify(&request).await.ok(), "{prefix}");
    }
    let directory = with(VerifyRequest::default(), |it| {
        it.prefix = Some(archive.segments[0].directory().to_owned());
        it.depth = VerifyDepth::Deep;
    });
    let report = archive.verify(&directory).await;
    assert!(report.ok());
    assert_eq!(report.partitions.len(), 1);
    let whole = archive.verify(&VerifyRequest::default()).await;
    assert_eq!(whole.global_orphan_objects, ["archived/x"]);
}
