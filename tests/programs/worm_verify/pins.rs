//! What an earlier run saw, kept elsewhere.

use std::fs;

use serde_json::Value;

use super::auditor::Auditor;
use crate::support::archive::{Archive, Key};

async fn pinned(archive: &Archive) -> (Auditor, String) {
    let auditor = Auditor::of(archive).await;
    let pins = auditor.path("pins.json").to_str().unwrap().to_owned();
    let run = auditor.verify(&["--allow-epoch-restarts", "--write-pins", &pins]);
    assert_eq!(run.code, Some(0), "{run:?}");
    (auditor, pins)
}

fn pins_of(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn pins_hold_for_the_archive_and_for_more_of_it() {
    let mut archive = Archive::sealed().await;
    let (auditor, pins) = pinned(&archive).await;
    let run = auditor.verify(&["--allow-epoch-restarts", "--pins", &pins]);
    assert_eq!(run.code, Some(0), "{run:?}");

    let before = pins_of(&pins);
    let stamp = archive.segments[2].receipt.next_stamp().unwrap();
    let sealed = archive.seal("orders", 0, 300, stamp, Key::usual()).await;
    let grown = Auditor::of(&archive).await;
    let only = [
        "--topic",
        "orders",
        "--partition",
        "0",
        "--pins",
        &pins,
        "--write-pins",
        &pins,
    ];
    let run = grown.verify(&only);
    assert_eq!(run.code, Some(0), "{run:?}");
    let after = pins_of(&pins);
    assert_eq!(after[sealed.directory()][0]["seq"], 3);
    // Partitions that were not looked at keep their pins.
    for (directory, positions) in before.as_object().unwrap() {
        if directory != sealed.directory() {
            assert_eq!(&after[directory], positions);
        }
    }
}

#[tokio::test]
async fn a_tail_a_run_or_a_partition_that_was_cut_off_is_found_with_pins_alone() {
    // The segments of each cut, by place in the archive.
    for cut in [&[2][..], &[5], &[5, 6], &[3, 4], &[7]] {
        let archive = Archive::sealed().await;
        let (earlier, pins) = pinned(&archive).await;
        for at in cut {
            archive.remove_segment(*at).await;
        }
        let auditor = Auditor::of(&archive).await;
        let kept = auditor.path("kept.json");
        fs::copy(pins, &kept).unwrap();
        drop(earlier);
        let kept = kept.to_str().unwrap();
        let run = auditor.verify(&["--allow-epoch-restarts", "--deep"]);
        assert_eq!(run.code, Some(i32::from(*cut == [5])), "{cut:?} {run:?}");
        let code = if *cut == [5] { 1 } else { 4 };
        let arguments = ["--allow-epoch-restarts", "--deep", "--pins", kept];
        let run = auditor.verify(&arguments);
        assert_eq!(run.code, Some(code), "{cut:?} {run:?}");
        // An archive that is not in order pins nothing.
        let run = auditor.verify(&[&arguments[..], &["--write-pins", kept]].concat());
        assert_eq!(run.code, Some(code));
        assert!(
            run.stderr.contains("no pins were written"),
            "{}",
            run.stderr
        );
        assert!(pins_of(kept).as_object().unwrap().len() == 3);
    }
}

#[tokio::test]
async fn an_older_state_of_the_archive_is_found_with_pins() {
    let mut archive = Archive::one_run(2).await;
    let old = archive.fork();
    let stamp = archive.segments[1].receipt.next_stamp().unwrap();
    archive.seal("orders", 0, 200, stamp, Key::usual()).await;
    let (_earlier, pins) = pinned(&archive).await;
    let replayed = Auditor::of(&old).await;
    replayed.verify(&["--deep"]).ok();
    let run = replayed.verify(&["--deep", "--pins", &pins]);
    run.fails(
        4,
        &[
            "HEAD MISMATCH at archive/orders-0-",
            "tip: no manifest with head",
        ],
    );

    // Nothing left at all.
    let empty = Auditor::of(&Archive::empty()).await;
    let run = empty.verify(&["--pins", &pins, "--allow-empty"]);
    run.fails(4, &["HEAD MISMATCH", "the directory is not there"]);
}

#[tokio::test]
async fn pins_that_cannot_be_read_or_written_are_an_error() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let path = auditor.path("pins.json");
    let pins = path.to_str().unwrap();
    auditor
        .verify(&["--pins", pins])
        .fails(3, &["cannot read the pins", pins]);
    for text in ["", "[]", "{\"a\":[{\"epoch_id\":1}]}", "{} x"] {
        fs::write(&path, text).unwrap();
        auditor
            .verify(&["--pins", pins])
            .fails(3, &["cannot read the pins"]);
    }
    let nowhere = auditor.path("no/such/pins.json");
    let run = auditor.verify(&["--write-pins", nowhere.to_str().unwrap()]);
    let run = run.fails(3, &["cannot write the pins"]);
    assert!(
        run.text().starts_with("OK"),
        "the verdict is told all the same"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn pins_go_where_a_link_says_and_replace_nothing_but_a_file() {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::os::unix::net::UnixListener;

    let (auditor, pins) = pinned(&Archive::sealed().await).await;
    let path = |name: &str| auditor.path(name).to_str().unwrap().to_owned();
    let write_to = |to: &str| auditor.verify(&["--allow-epoch-restarts", "--write-pins", to]);

    let (link, kept) = (path("link"), path("kept.json"));
    fs::write(&kept, "{}").unwrap();
    symlink("kept.json", &link).unwrap();
    let run = write_to(&link);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(pins_of(&kept), pins_of(&pins));

    let socket = path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let run = write_to(&socket);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(
        fs::symlink_metadata(&socket)
            .unwrap()
            .file_type()
            .is_socket()
    );
}
