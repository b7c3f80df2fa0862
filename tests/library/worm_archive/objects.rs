//! Tampering with objects: their bodies, which of them a manifest lists, and what else is there.

use krabka_remote_storage::archive::{OrphanClass, VerifyBreakKind, VerifyRequest};
use krabka_remote_storage::{ManifestBody, ManifestSeq};

use crate::support::archive::{Archive, assert_break, deep, partition, shallow};

type Change = Box<dyn Fn(&mut ManifestBody)>;

fn both() -> [VerifyRequest; 2] {
    [shallow(), deep()]
}

#[tokio::test]
async fn a_flipped_byte_is_found_at_depth_only() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    for suffix in [".log", ".index", ".leader_epoch_checkpoint"] {
        let archive = archive.fork();
        let mut body = archive.get(&sealed.key(suffix)).await.to_vec();
        body[3] ^= 1;
        archive.put(&sealed.key(suffix), body).await;
        assert!(archive.shallow().await.ok());
        let report = archive.deep().await;
        assert_break(
            &report,
            sealed.directory(),
            VerifyBreakKind::Digest,
            &sealed.manifest_key,
        );
        assert_eq!(report.first_break().unwrap().seq, Some(ManifestSeq(1)));
        assert_eq!(partition(&report, &sealed).manifests, 1);
    }
}

#[tokio::test]
async fn a_body_that_is_cut_or_gone_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let cut = archive.fork();
    let body = cut.get(&sealed.key(".log")).await;
    cut.put(&sealed.key(".log"), body.slice(..5)).await;
    let gone = archive.fork();
    gone.delete(&sealed.key(".log")).await;
    for request in both() {
        for (archive, kind) in [
            (&cut, VerifyBreakKind::Size),
            (&gone, VerifyBreakKind::Missing),
        ] {
            let report = archive.verify(&request).await;
            assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
        }
    }
}

#[tokio::test]
async fn a_set_of_objects_that_was_changed_and_signed_again_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let other_key = archive.segments[0].key(".index");
    let changes: [(VerifyBreakKind, Change); 11] = [
        (
            VerifyBreakKind::Empty,
            Box::new(|body| body.objects.clear()),
        ),
        (
            VerifyBreakKind::Incomplete,
            Box::new(|body| {
                body.objects.remove(0);
            }),
        ),
        (
            VerifyBreakKind::Count,
            Box::new(|body| {
                body.objects.remove(1);
            }),
        ),
        (
            VerifyBreakKind::Duplicate,
            Box::new(|body| body.objects.push(body.objects[1].clone())),
        ),
        (
            // Of the segment before: accepted, so it is listed already.
            VerifyBreakKind::Duplicate,
            Box::new(move |body| body.objects[1].key.clone_from(&other_key)),
        ),
        (
            VerifyBreakKind::Coordinates,
            Box::new(|body| ".timeindex".clone_into(&mut body.objects[1].suffix)),
        ),
        (
            VerifyBreakKind::Coordinates,
            Box::new(|body| ".idx".clone_into(&mut body.objects[1].suffix)),
        ),
        (
            VerifyBreakKind::Coordinates,
            Box::new(|body| {
                let object = &mut body.objects[1];
                object.key = object.key.replace(".index", ".manifest");
                ".manifest".clone_into(&mut object.suffix);
            }),
        ),
        (
            VerifyBreakKind::Coordinates,
            Box::new(|body| {
                let object = &mut body.objects[1];
                object.key = object.key.replace("0100-", "0101-");
            }),
        ),
        (
            VerifyBreakKind::Missing,
            Box::new(|body| {
                let mut object = body.objects[1].clone();
                object.key = object.key.replace(".index", ".txnindex");
                ".txnindex".clone_into(&mut object.suffix);
                body.objects.push(object);
            }),
        ),
        (
            VerifyBreakKind::Size,
            Box::new(|body| body.objects[1].size_bytes += 1),
        ),
    ];
    for (number, (kind, change)) in changes.into_iter().enumerate() {
        let archive = archive.fork();
        archive.resign(1, change).await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_eq!(report.first_break().map(|b| b.kind), Some(kind), "{number}");
            assert_break(&report, sealed.directory(), kind, &sealed.manifest_key);
        }
    }
}

#[tokio::test]
async fn of_several_faults_of_one_manifest_the_first_kind_is_reported() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    // Size, count and coordinates at once, in this order of the entries.
    archive
        .resign(1, |body| {
            body.objects[0].size_bytes += 1;
            body.objects.remove(1);
            ".idx".clone_into(&mut body.objects[2].suffix);
        })
        .await;
    let mut body = archive.get(&sealed.key(".log")).await.to_vec();
    body[0] ^= 1;
    archive.put(&sealed.key(".log"), body).await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert_break(
            &report,
            sealed.directory(),
            VerifyBreakKind::Coordinates,
            &sealed.manifest_key,
        );
    }
}

#[tokio::test]
async fn an_object_of_the_segment_before_it_in_the_chain_is_told_from_one_behind() {
    let archive = Archive::sealed().await;
    let (earlier, later) = (
        archive.segments[1].clone(),
        archive.segments[2].key(".index"),
    );
    archive
        .resign(1, move |body| body.objects[1].key = later)
        .await;
    let report = archive.shallow().await;
    assert_break(
        &report,
        earlier.directory(),
        VerifyBreakKind::Coordinates,
        &earlier.manifest_key,
    );
}

#[tokio::test]
async fn foreign_objects_are_found_wherever_they_are() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    for suffix in [".idx", "", ".txnindex", ".log.deleted"] {
        let archive = archive.fork();
        archive.put(&sealed.key(suffix), "foreign").await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Count,
                &sealed.manifest_key,
            );
        }
    }
    for name in ["note.txt", "00000000000000000100.log", ".krabka-worm-probe"] {
        let archive = archive.fork();
        let key = format!("{}/{name}", sealed.directory());
        archive.put(&key, "foreign").await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert!(!report.ok() && report.first_break().is_none());
            let orphans = &partition(&report, &sealed).orphan_objects;
            assert_eq!(orphans.len(), 1, "{orphans:?}");
            assert_eq!(
                (&orphans[0].key, orphans[0].class),
                (&key, OrphanClass::Foreign)
            );
        }
    }
    for key in [
        "archive/note.txt",
        "archive/some/thing.manifest",
        "archive/orders-00-AAAAAAAAAAAAAAAAAAAAbw/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log",
        &format!("{}/below/x", sealed.directory()),
    ] {
        let archive = archive.fork();
        archive.put(key, "foreign").await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert!(!report.ok() && report.first_break().is_none());
            assert_eq!(report.global_orphan_objects, [key]);
        }
    }
}

#[tokio::test]
async fn an_attempt_that_another_replaced_is_told_from_one_without_a_manifest() {
    let archive = Archive::one_run(2).await;
    for (start_offset, class) in [
        (100, OrphanClass::Superseded),
        (200, OrphanClass::Uncommitted),
    ] {
        let archive = archive.fork();
        let stamp = archive.segments[1].receipt.next_stamp().unwrap();
        let attempt = crate::support::archive::metadata("orders", 0, start_offset, 0x77, stamp);
        archive.upload(&attempt).await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert!(!report.ok() && report.first_break().is_none());
            let orphans = &report.partitions[0].orphan_objects;
            assert!(orphans.len() >= 4);
            assert!(
                orphans.iter().all(|orphan| orphan.class == class),
                "{orphans:?}"
            );
        }
    }
}

#[tokio::test]
async fn without_its_newest_manifest_a_segments_objects_are_orphans() {
    let archive = Archive::one_run(3).await;
    let sealed = &archive.segments[2];
    archive.delete(&sealed.manifest_key).await;
    for request in both() {
        let report = archive.verify(&request).await;
        assert!(!report.ok());
        let partition = partition(&report, sealed);
        assert_eq!(partition.first_break, None);
        assert_eq!(partition.orphan_objects.len(), 6);
        assert!(
            partition
                .orphan_objects
                .iter()
                .all(|orphan| orphan.class == OrphanClass::Uncommitted)
        );
        assert!(partition.orphan_objects.is_sorted());
    }
}

#[tokio::test]
async fn an_entry_outside_of_its_directory_is_found() {
    let archive = Archive::sealed().await;
    let sealed = archive.segments[1].clone();
    let elsewhere = archive.segments[7].key(".index");
    for key in [
        elsewhere.as_str(),
        "",
        "/etc/passwd",
        "../../secret",
        "archive",
    ] {
        let archive = archive.fork();
        let key = key.to_owned();
        archive.resign(1, |body| body.objects[1].key = key).await;
        for request in both() {
            let report = archive.verify(&request).await;
            assert_break(
                &report,
                sealed.directory(),
                VerifyBreakKind::Misplaced,
                &sealed.manifest_key,
            );
        }
    }
}
