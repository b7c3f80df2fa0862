//! The directory: whose it is, what is found in it, and what its failures do.

use super::*;
use crate::error::ErrorKind;
use crate::model::decode_kafka_uuid;

use IndexCacheOutcome::{Hit, Miss};

fn kept(dir: &TempDir, max_bytes: u64) -> RemoteIndexCache {
    IndexCacheConfig::files(dir.path())
        .keep_files()
        .max_bytes(max_bytes)
        .open()
        .unwrap()
}

async fn get(cache: &RemoteIndexCache, id: u128, source: &Source) -> (Bytes, IndexCacheOutcome) {
    cache
        .get_or_fetch(&segment(id), IndexType::Offset, source.fetch())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_second_cache_on_the_directory_is_refused_as_long_as_the_first_lives() {
    let case = Case::files(LARGE);
    let source = Source::of(40);
    case.outcome(1, IndexType::Offset, &source).await;
    for second in [
        RemoteIndexCache::new(case.dir.path(), LARGE),
        IndexCacheConfig::files(case.dir.path()).keep_files().open(),
    ] {
        let error = second.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        let directory = case.dir.path().join(REMOTE_INDEX_CACHE_DIR);
        assert!(text.contains(directory.to_str().unwrap()), "{text}");
        assert!(text.contains("in use"), "{text}");
    }
    // The first has lost nothing by it.
    assert_eq!(case.outcome(1, IndexType::Offset, &source).await, Hit);
    let Case { cache, dir, .. } = case;
    let clone = cache.clone();
    drop(cache);
    RemoteIndexCache::new(dir.path(), LARGE).unwrap_err();
    drop(clone);
    RemoteIndexCache::new(dir.path(), LARGE).unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_had_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(REMOTE_INDEX_CACHE_DIR);
    fs::write(&path, b"a file").unwrap();
    let error = RemoteIndexCache::new(dir.path(), LARGE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_survives_a_restart_unless_that_is_asked_for() {
    for keep in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let config = IndexCacheConfig::files(dir.path());
            let config = if keep { config.keep_files() } else { config };
            config.open().unwrap()
        };
        let source = Source::of(5000);
        get(&open(), 1, &source).await;
        assert_eq!(cached_files(&dir).len(), usize::from(keep));

        let restarted = open();
        let stats = restarted.stats();
        assert_eq!([stats.entries, stats.misses], [u64::from(keep), 0]);
        let (bytes, outcome) = get(&restarted, 1, &source).await;
        assert_eq!(bytes, (source.answer)(0).unwrap());
        assert_eq!(outcome, if keep { Hit } else { Miss });
        assert_eq!(source.asked(), if keep { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_file_that_outlived_a_restart_is_evicted_and_removed_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::of(40);
    let first = kept(&dir, LARGE);
    for id in 1..=5 {
        get(&first, id, &source).await;
    }
    drop(first);
    let second = kept(&dir, 120);
    assert_eq!(second.stats().bytes, 120, "what does not fit is gone");
    assert_eq!(cached_files(&dir).len(), 3);
    let mut kept_ids = Vec::new();
    for id in 1..=5 {
        if second.inner().peek(key(id)).is_some() {
            kept_ids.push(id);
        }
    }
    second.remove_segment(Uuid::from_u128(kept_ids[0])).await;
    assert_eq!(cached_files(&dir).len(), 2);
    for id in 6..=8 {
        get(&second, id, &source).await;
    }
    assert_eq!(second.stats().bytes, 120);
    assert_eq!(cached_files(&dir).len(), 3);
    // And those who read a file while the cache closes do not take it away.
    let segment = segment(8);
    let read = second.open(&segment, IndexType::Offset, source.fetch());
    let read = read.await.unwrap();
    drop(second);
    drop(read);
    assert_eq!(cached_files(&dir).len(), 3);
    assert_eq!(get(&kept(&dir, 120), 8, &source).await.1, Hit);
}

fn key(id: u128) -> content::Key {
    content::Key::new(Uuid::from_u128(id), IndexType::Offset).unwrap()
}

#[tokio::test]
async fn a_restart_takes_only_whole_files_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::of(40);
    let first = kept(&dir, LARGE);
    for id in 1..=4 {
        get(&first, id, &source).await;
    }
    drop(first);
    let cached = dir.path().join(REMOTE_INDEX_CACHE_DIR);
    let of = |id: u128| {
        let id = crate::model::kafka_uuid(Uuid::from_u128(id));
        cached_files(&dir)
            .into_iter()
            .find(|path| path.to_str().unwrap().contains(&id))
            .unwrap()
    };
    // One that was not finished, one emptied, one overwritten.
    fs::rename(of(1), of(1).with_extension("index.tmp")).unwrap();
    fs::write(of(2), b"").unwrap();
    fs::write(of(3), [1; 40]).unwrap();
    // And one that stands there twice.
    let twice = of(4).to_str().unwrap().replace(".index", "");
    let (front, random) = twice.split_at(twice.len() - 12);
    assert_ne!(random, "abcdefghijkl");
    fs::copy(of(4), format!("{front}abcdefghijkl.index")).unwrap();
    for stray in [
        "45_ABEiM0RVZneImaq7zN3u_w.index",
        "45_ABEiM0RVZneImaq7zN3u_w.index.deleted",
        "45_ABEiM0RVZneImaq7zN3u_w.zzzzzzzzabcdefghijkl.index",
        "45_ABEiM0RVZneImaq7zN3u_w.00000000abcdefghijkl.snapshot",
        "x",
    ] {
        fs::write(cached.join(stray), [7; 40]).unwrap();
    }
    fs::create_dir(cached.join("45_ABEiM0RVZneImaq7zN3u_w.00000000abcdefghijkl.index")).unwrap();

    let second = kept(&dir, LARGE);
    assert_eq!(cached_files(&dir).len(), 2, "{:?}", cached_files(&dir));
    assert_eq!(second.stats().entries, 2);
    for (id, outcome) in [(1, Miss), (2, Miss), (3, Miss), (4, Hit)] {
        let (bytes, seen) = get(&second, id, &source).await;
        assert_eq!(
            (seen, bytes),
            (outcome, (source.answer)(0).unwrap()),
            "{id}"
        );
    }
    assert_eq!(second.stats().entries, 4);
}

#[tokio::test]
async fn a_cache_that_is_dropped_takes_its_files_with_it() {
    let case = Case::files(LARGE);
    let source = Source::of(40);
    for id in 0..10 {
        case.outcome(id, IndexType::Offset, &source).await;
    }
    assert_eq!(case.cached_files().len(), 10);
    let Case { cache, dir, .. } = case;
    drop(cache);
    assert_eq!(cached_files(&dir), NO_FILES);
}

#[tokio::test]
async fn a_disk_that_takes_no_files_fails_no_read() {
    for case in [&Case::each(LARGE)[0], &Case::each(LARGE)[1]] {
        let source = Source::of(40);
        case.outcome(1, IndexType::Offset, &source).await;
        // Where the directory was is something else.
        let directory = case.dir.path().join(REMOTE_INDEX_CACHE_DIR);
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, b"in the way").unwrap();
        for id in [1, 2, 2] {
            assert_eq!(case.outcome(id, IndexType::Offset, &source).await, Miss);
        }
        assert_eq!(case.stats(), [0, 4, 0, 0, 0]);
        case.cache.remove_segment(Uuid::from_u128(1)).await;

        // And it is a cache again when the disk is a disk again.
        fs::remove_file(&directory).unwrap();
        assert_eq!(case.outcome(2, IndexType::Offset, &source).await, Miss);
        assert_eq!(case.outcome(2, IndexType::Offset, &source).await, Hit);
        assert_eq!(case.cached_files().len(), 1);
    }
}

#[tokio::test]
async fn a_kafka_broker_would_start_in_the_directory() {
    for case in [&Case::each(LARGE)[0], &Case::each(LARGE)[1]] {
        let source = Source::of(40);
        for id in [1, u128::MAX, 0xff << 100] {
            for index in CACHED {
                case.outcome(id, index, &source).await;
            }
        }
        let files = case.cached_files();
        assert_eq!(files.len(), 9);
        for path in files {
            let name = path.file_name().unwrap().to_str().unwrap();
            // It deletes temporary files, and takes the rest apart like this.
            let id = &name[name.find('_').unwrap() + 1..name.find('.').unwrap()];
            assert!(decode_kafka_uuid(id).is_some(), "{name}");
            assert_eq!(name[..name.find('_').unwrap()].parse(), Ok(45_i64));
            assert_eq!(name.ends_with(".tmp"), case.mode == "files", "{name}");
        }
        // The lock is not in there.
        assert!(case.dir.path().join("remote-log-index-cache.lock").exists());
    }
}
