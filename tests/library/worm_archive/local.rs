//! An archive in local files.

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;

use futures::TryStreamExt as _;
use krabka_remote_storage::archive::{
    ArchiveVerifyReport, OrphanClass, VerifyBreakKind, VerifyRequest, verify_archive,
};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tempfile::TempDir;

use crate::support::archive::{Archive, assert_break, deep, shallow, trusted};

async fn on_disk(archive: &Archive) -> TempDir {
    let dir = TempDir::new().unwrap();
    let objects: Vec<_> = archive.memory.list(None).try_collect().await.unwrap();
    for object in objects {
        let path = dir.path().join(object.location.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let result = archive.memory.get(&object.location).await.unwrap();
        fs::write(path, result.bytes().await.unwrap()).unwrap();
    }
    dir
}

async fn verify(root: &FilePath, request: &VerifyRequest) -> ArchiveVerifyReport {
    let store = LocalFileSystem::new_with_prefix(root).unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    verify_archive(&store, request, &trusted()).await.unwrap()
}

#[tokio::test]
async fn files_are_verified_like_any_store() {
    let archive = Archive::sealed().await;
    let dir = on_disk(&archive).await;
    for request in [shallow(), deep()] {
        let report = verify(dir.path(), &request).await;
        assert_eq!(report, archive.verify(&request).await);
        assert!(report.ok());
    }
    let sealed = &archive.segments[1];
    let path = dir.path().join(sealed.key(".log"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = verify(dir.path(), &deep()).await;
    assert_break(
        &report,
        sealed.directory(),
        VerifyBreakKind::Digest,
        &sealed.manifest_key,
    );
}

#[tokio::test]
async fn a_body_of_many_buffers_is_hashed_whole() {
    let mut archive = Archive::empty();
    archive
        .seal_run("orders", 0, crate::support::archive::epoch(1), 0, 1)
        .await;
    let body: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
    let key = archive.segments[0].key(".log");
    archive.put(&key, body.clone()).await;
    archive
        .resign(0, |manifest| {
            let object = &mut manifest.objects[0];
            *object = crate::support::archive::entry(key.clone(), ".log", &body.into());
        })
        .await;
    let dir = on_disk(&archive).await;
    assert!(verify(dir.path(), &deep()).await.ok());
    let path = dir.path().join(&key);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = verify(dir.path(), &deep()).await;
    assert_eq!(report.first_break().unwrap().kind, VerifyBreakKind::Digest);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_is_no_object() {
    use std::os::unix::fs::symlink;

    let archive = Archive::sealed().await;
    let sealed = &archive.segments[1];
    let outside = TempDir::new().unwrap();
    for (suffix, kind) in [
        (".index", VerifyBreakKind::Missing),
        (".manifest", VerifyBreakKind::Sequence),
    ] {
        let dir = on_disk(&archive).await;
        let key = sealed.key(suffix);
        let path = dir.path().join(&key);
        let target = outside.path().join(suffix);
        fs::rename(&path, &target).unwrap();
        symlink(&target, &path).unwrap();
        for request in [shallow(), deep()] {
            let report = verify(dir.path(), &request).await;
            let at = match kind {
                VerifyBreakKind::Missing => sealed,
                _ => &archive.segments[2],
            };
            assert_break(&report, sealed.directory(), kind, &at.manifest_key);
            let orphans = &report.partitions[0].orphan_objects;
            let link = orphans.iter().find(|orphan| orphan.key == key).unwrap();
            assert_eq!(link.class, OrphanClass::Foreign);
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_in_a_linked_directory_counts() {
    use std::os::unix::fs::symlink;

    let archive = Archive::one_run(2).await;
    for linked in [archive.segments[0].directory(), "archive"] {
        let dir = on_disk(&archive).await;
        let outside = TempDir::new().unwrap();
        let path = dir.path().join(linked);
        let target = outside.path().join("target");
        fs::rename(&path, &target).unwrap();
        symlink(&target, &path).unwrap();
        let report = verify(dir.path(), &shallow()).await;
        assert!(!report.ok());
        let partition = &report.partitions[0];
        assert_eq!(partition.manifests, 0);
        assert_eq!(partition.orphan_objects.len(), 6 + 4 + 2);
        assert!(
            partition
                .orphan_objects
                .iter()
                .all(|orphan| orphan.class == OrphanClass::Foreign)
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn what_the_client_of_local_files_passes_over_is_foreign_all_the_same() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    let archive = Archive::sealed().await;
    let sealed = &archive.segments[1];
    // One that looks like an upload under way, a socket, a link to nothing.
    let upload = format!("{}#1", sealed.key(".log").rsplit('/').next().unwrap());
    let put = |path: &FilePath, name: &str| match name {
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "link" => symlink("nothing", path).unwrap(),
        _ => fs::write(path, "x").unwrap(),
    };
    for name in [&upload, "socket", "link", "4#22"] {
        for request in [shallow(), deep()] {
            let dir = on_disk(&archive).await;
            let key = format!("{}/{name}", sealed.directory());
            put(&dir.path().join(&key), name);
            let report = verify(dir.path(), &request).await;
            assert!(!report.ok(), "{key}");
            let mut partitions = report.partitions.iter();
            let found = partitions
                .find(|partition| partition.partition_dir == sealed.directory())
                .unwrap();
            assert_eq!(found.first_break, None);
            let [orphan] = found.orphan_objects.as_slice() else {
                panic!("{:?}", found.orphan_objects);
            };
            assert_eq!((&orphan.key, orphan.class), (&key, OrphanClass::Foreign));
            assert_eq!(report.global_orphan_objects, [""; 0]);
        }
        for directory in [
            "archive/",
            "archive/beside/",
            "archive/orders-9-AAAAAAAAAAAAAAAAAAAAAA/",
        ] {
            let dir = on_disk(&archive).await;
            let key = format!("{directory}{name}");
            fs::create_dir_all(dir.path().join(directory)).unwrap();
            put(&dir.path().join(&key), name);
            let report = verify(dir.path(), &deep()).await;
            assert!(!report.ok(), "{key}");
            assert_eq!(report.global_orphan_objects, [key]);
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_may_not_be_searched_makes_the_listing_fail() {
    use std::os::unix::fs::PermissionsExt as _;

    let archive = Archive::sealed().await;
    let dir = on_disk(&archive).await;
    let partition = dir.path().join(archive.segments[1].directory());
    let set_mode = |mode| fs::set_permissions(&partition, fs::Permissions::from_mode(mode));
    set_mode(0o444).unwrap();
    let superuser = fs::read(dir.path().join(&archive.segments[1].manifest_key)).is_ok();
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    let verified = verify_archive(&store, &shallow(), &trusted()).await;
    set_mode(0o755).unwrap();
    match verified {
        // Whom no mode holds back sees everything.
        Ok(report) => assert!(superuser && report.ok()),
        Err(error) => assert!(!superuser, "{error}"),
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_name_that_is_no_key_makes_the_listing_fail_and_forges_nothing() {
    use krabka_remote_storage::WormError;

    let archive = Archive::one_run(1).await;
    let dir = on_disk(&archive).await;
    fs::write(dir.path().join("archive/x\nOK: 8 manifests"), "x").unwrap();
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    let error = verify_archive(&store, &shallow(), &trusted())
        .await
        .unwrap_err();
    assert!(matches!(&error, WormError::Archive(_)));
    assert!(!error.to_string().contains('\n'), "{error}");
}
