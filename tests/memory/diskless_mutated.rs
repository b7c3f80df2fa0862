//! Mutated inputs for every decoder of the diskless formats, in the optimised build.
//!
//! No input may panic, take long, or make a decoder use more memory than the input's length and
//! 1 MiB. What is accepted has to come out again as it went in.
//!
//! ```sh
//! KRABKA_FUZZ_INPUTS=10000000 cargo test --release --test memory diskless_mutated -- --nocapture
//! ```
//!
//! The inputs of a run follow from `KRABKA_FUZZ_SEED`. The folder `fuzz` has the same decoders for
//! cargo-fuzz.

use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use krabka_remote_storage::archive::{FileSigner, ManifestSigner as _, generate_key};
use krabka_remote_storage::diskless::{
    DisklessWalCapture, WalCaptureProjection, WalDeleteFloorKey, WalDeleteFloorRecord,
    WalFlushRecord, WalIndexEntry, WalIndexKey, WalObjectBuilder, parse_wal_object,
    parse_wal_object_key, wal_index_key_version, whole_batches,
};
use krabka_remote_storage::{
    ChainHead, HexBytes, ObjectEntry, Sha256Digest, TrustedManifestKeys, WormArchiver,
};
use krabka_test_allocator::Heap;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Uuid;

use crate::support::alone::alone;

const MIB: usize = 1 << 20;
const TOPIC_ID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const KEY_ID: &str = "capture-key";

/// A large valid input comes this seldom, because it takes as long as so many small ones.
const LARGE_EVERY: u64 = 2_000;

#[test]
fn mutated_inputs_are_read_or_refused_in_bounded_memory() {
    alone(|| {
        let number = |name: &str, default| {
            std::env::var(name).map_or(default, |text| text.parse::<u64>().expect(name))
        };
        let inputs = number("KRABKA_FUZZ_INPUTS", 100_000);
        let seed = number("KRABKA_FUZZ_SEED", 12);
        let samples = Samples::new();

        let decoders: [(&str, &[Vec<u8>], Decoder<'_>); 7] = [
            ("keys", &samples.keys, &keys),
            ("flush value", &samples.flush_values, &flush_value),
            ("delete-floor value", &samples.floor_values, &floor_value),
            ("index records", &samples.flush_values, &index_record),
            ("WAL object", &samples.objects, &wal_object),
            ("batches of a range", &samples.batches, &batches),
            ("capture", &samples.captures, &|input| {
                capture(input, &samples.trusted, samples.head)
            }),
        ];
        for (name, valid, decode) in decoders {
            let figures = fuzz(valid, decode, inputs, seed);
            println!("{name}: {figures}");
            // The mutations leave some right, and damage most.
            assert!(
                figures.accepted > 0 && figures.accepted < inputs,
                "{name}: {figures}"
            );
        }
    });
}

/// Decodes an input; whether it was accepted.
type Decoder<'a> = &'a dyn Fn(&[u8]) -> bool;

struct Figures {
    inputs: u64,
    accepted: u64,
    bytes: u64,
    longest_input: usize,
    /// The most memory beyond the input's length.
    peak_beyond_input: isize,
    slowest: Duration,
    took: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} inputs in {:.1?} ({} accepted), {} bytes on average and {} at most; peak memory at \
             most input {:+} bytes, slowest {:.1?}",
            self.inputs,
            self.took,
            self.accepted,
            self.bytes / self.inputs,
            self.longest_input,
            self.peak_beyond_input,
            self.slowest
        )
    }
}

fn fuzz(valid: &[Vec<u8>], decode: Decoder<'_>, inputs: u64, seed: u64) -> Figures {
    let mut rng = StdRng::seed_from_u64(seed);
    let (large, small): (Vec<_>, Vec<_>) = valid.iter().partition(|valid| valid.len() > 16_384);
    for valid in valid {
        assert!(decode(valid), "a valid input is accepted");
    }
    let mut figures = Figures {
        inputs,
        accepted: 0,
        bytes: 0,
        longest_input: 0,
        peak_beyond_input: isize::MIN,
        slowest: Duration::ZERO,
        took: Duration::ZERO,
    };
    let began = Instant::now();
    let mut input = Vec::new();
    for number in 0..inputs {
        let pool = if number % LARGE_EVERY == 0 && !large.is_empty() {
            &large
        } else {
            &small
        };
        mutate(&mut rng, pool, &mut input);

        let heap = Heap::start();
        let decoding = Instant::now();
        let accepted = decode(&input);
        let took = decoding.elapsed();
        let heap = heap.heap();

        let beyond = heap.peak.cast_signed() - input.len().cast_signed();
        assert!(
            beyond <= MIB.cast_signed(),
            "input {number} of seed {seed}: {heap:?} for {} bytes",
            input.len()
        );
        assert_eq!(
            heap.live, 0,
            "input {number} of seed {seed} leaves {heap:?}"
        );
        assert!(
            took < Duration::from_secs(5),
            "input {number} of seed {seed} took {took:?}"
        );
        figures.accepted += u64::from(accepted);
        figures.bytes += input.len() as u64;
        figures.longest_input = figures.longest_input.max(input.len());
        figures.peak_beyond_input = figures.peak_beyond_input.max(beyond);
        figures.slowest = figures.slowest.max(took);
    }
    figures.took = began.elapsed();
    figures
}

fn keys(input: &[u8]) -> bool {
    let _ = wal_index_key_version(input);
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = black_box(parse_wal_object_key(text));
    }
    let applied = WalCaptureProjection::new().apply(Some(input), None).is_ok();
    if let Some(key) = WalIndexKey::from_bytes(input) {
        assert_eq!(key.to_bytes(), input);
        return true;
    }
    if let Some(key) = WalDeleteFloorKey::from_bytes(input) {
        assert_eq!(key.to_bytes(), input);
        return true;
    }
    assert!(!applied, "a tombstone under no key");
    false
}

fn flush_value(input: &[u8]) -> bool {
    match WalFlushRecord::from_bytes(input) {
        Ok(record) => {
            assert!(record.to_bytes().expect("the known version") == input);
            true
        }
        Err(error) => {
            let _ = black_box(error.to_string());
            false
        }
    }
}

fn floor_value(input: &[u8]) -> bool {
    match WalDeleteFloorRecord::from_bytes(input) {
        Ok(record) => {
            assert!(record.to_bytes() == input);
            true
        }
        Err(error) => {
            let _ = black_box(error.to_string());
            false
        }
    }
}

/// A value under the key that belongs to it, as far as the value can be read.
fn index_record(input: &[u8]) -> bool {
    let key = match WalFlushRecord::from_bytes(input) {
        Ok(record) if !record.entries.is_empty() => {
            WalIndexKey::from(&record.entries[0]).to_bytes().to_vec()
        }
        _ => vec![0; 30],
    };
    let mut projection = WalCaptureProjection::new();
    let applied = projection.apply(Some(&key), Some(input));
    if applied.is_err() {
        assert!(projection == WalCaptureProjection::new());
        return false;
    }
    let (topic_id, partition, ranges) = projection.partitions().next().expect("a partition");
    let range = ranges.ranges().next().expect("a range");
    assert!(range.to_record().1 == input);
    let first = range.entry.first_offset;
    assert!(projection.lookup(topic_id, partition, first) == Some(range));
    let _ = black_box(ranges.read(first, u64::MAX));
    true
}

fn wal_object(input: &[u8]) -> bool {
    let Ok(runs) = parse_wal_object(input) else {
        return false;
    };
    let mut end = 6;
    for run in runs {
        assert!(run.byte_start >= end && run.byte_len > 0 && run.partition >= 0);
        assert!(0 <= run.first_offset && run.first_offset <= run.last_offset);
        end = run.bytes().end;
        let bytes = run.run_of(input).expect("a run inside its object");
        let _ = black_box(run.check_run(bytes).is_ok());
    }
    true
}

fn batches(input: &[u8]) -> bool {
    match whole_batches(input, 12, 200) {
        Ok(found) => found.is_empty() || input.windows(found.len()).any(|part| part == found),
        Err(_) => false,
    }
}

fn capture(input: &[u8], trusted: &TrustedManifestKeys, head: ChainHead) -> bool {
    let capture = match DisklessWalCapture::from_slice(input) {
        Ok(capture) => capture,
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 4_000, "{text}");
            return false;
        }
    };
    if capture.authenticate(trusted, head).is_ok() {
        assert!(capture.head() == Some(head));
        assert!(capture.objects().len() <= capture.state().len());
    }
    true
}

struct Samples {
    keys: Vec<Vec<u8>>,
    flush_values: Vec<Vec<u8>>,
    floor_values: Vec<Vec<u8>>,
    objects: Vec<Vec<u8>>,
    batches: Vec<Vec<u8>>,
    captures: Vec<Vec<u8>>,
    trusted: TrustedManifestKeys,
    head: ChainHead,
}

impl Samples {
    fn new() -> Self {
        let flush = |key: &str, entries: &[WalIndexEntry]| {
            let record = WalFlushRecord {
                object_key: key.to_owned(),
                format_version: WalFlushRecord::FORMAT_VERSION,
                entries: entries.to_vec(),
            };
            record.to_bytes().expect("the known version")
        };
        let long_key = format!("tier/diskless-wal/1/{TOPIC_ID}.ckwl");
        let mut floor_values = Vec::new();
        for (partition, floor) in [(3, 42), (0, 0), (i32::MAX, i64::MAX)] {
            let record = WalDeleteFloorRecord {
                topic_id: TOPIC_ID,
                partition,
                floor,
            };
            floor_values.push(record.to_bytes());
        }
        let (captures, trusted, head) = captures();
        Self {
            keys: vec![
                WalIndexKey::from(&entry(0)).to_bytes().to_vec(),
                WalIndexKey::from(&entry(7)).to_bytes().to_vec(),
                WalDeleteFloorKey {
                    topic_id: TOPIC_ID,
                    partition: 3,
                }
                .to_bytes()
                .to_vec(),
            ],
            flush_values: vec![
                flush("wal/a", &[entry(0)]),
                flush(&long_key, &[entry(1)]),
                flush("ü", &[entry(9)]),
            ],
            floor_values,
            objects: vec![
                WalObjectBuilder::new().finish().into(),
                object(1),
                object(3),
                object(20),
                object(3_000),
            ],
            batches: vec![
                [golden_batch(), second_batch()].concat(),
                second_batch(),
                golden_batch().repeat(5),
                Vec::new(),
            ],
            captures,
            trusted,
            head,
        }
    }
}

/// The range with this number of partition 3: ten offsets, a hole in the bytes behind it.
fn entry(number: u32) -> WalIndexEntry {
    WalIndexEntry {
        topic_id: TOPIC_ID,
        partition: 3,
        first_offset: i64::from(number) * 10,
        last_offset: i64::from(number) * 10 + 9,
        byte_start: 6 + u64::from(number) * 100,
        byte_len: 64,
        max_timestamp_ms: 1_700_000_000_000,
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    digits.parse::<HexBytes>().expect("digits").0
}

/// Offsets 10 and 11.
fn golden_batch() -> Vec<u8> {
    unhex(concat!(
        "000000000000000a0000004900000000028226540300000000000100000000000003e8000000000000044cffffff",
        "ffffffffffffffffffffff0000000212000000026b047630001a00c80102010476310202680278"
    ))
}

/// Offset 13.
fn second_batch() -> Vec<u8> {
    unhex(concat!(
        "000000000000000d000000420000000002bac1e0b5003000000000000000000000051400000000000005140000",
        "000000000fa00001ffffffff000000012000000008000000010c00000000000700"
    ))
}

fn object(runs: i32) -> Vec<u8> {
    let mut builder = WalObjectBuilder::new();
    for partition in 0..runs {
        let (first, last, run) = match partition % 3 {
            0 => (10, 11, golden_batch()),
            1 => (13, 13, second_batch()),
            _ => (10, 13, [golden_batch(), second_batch()].concat()),
        };
        builder
            .append_run(TOPIC_ID, partition, first, last, &run)
            .expect("a run");
    }
    builder.finish().into()
}

/// Captures, sealed and not, small and large; the key that the sealed ones are signed with, and the
/// head of one.
fn captures() -> (Vec<Vec<u8>>, TrustedManifestKeys, ChainHead) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key.pem");
    generate_key(&path).expect("a key");
    let signer = FileSigner::load(KEY_ID, &path).expect("a key");
    let trusted = TrustedManifestKeys::single(KEY_ID, *signer.public_key());
    let archiver = WormArchiver::new(Some(Arc::new(signer)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut documents = Vec::new();
    let mut heads = Vec::new();
    for ranges in [0, 1, 3, 600] {
        let mut projection = WalCaptureProjection::new();
        let mut claims = Vec::new();
        for number in 0..ranges {
            let key = format!("wal/{number:04}");
            let (record, value) = WalFlushRecord::keyed_entry(&key, entry(number));
            projection
                .apply(Some(&record), Some(&value))
                .expect("a range");
            claims.push(ObjectEntry {
                suffix: ".ckwl".to_owned(),
                sha256: Sha256Digest::of(&key),
                key,
                size_bytes: 1_000_000,
                e_tag: Some("\"e\"".to_owned()),
                version_id: None,
                create_precondition: true,
            });
        }
        let topics = HashMap::from([(TOPIC_ID, ("orders".to_owned(), 2))]);
        let capture = projection.capture(&topics, vec![5, 0], 1_700_000_000_000);
        let capture = capture
            .and_then(|capture| capture.with_snapshots(Some(Sha256Digest([7; 32])), None, None))
            .expect("a capture");
        documents.push(capture.to_vec().expect("a document"));
        let sealed = runtime.block_on(capture.seal(claims, &archiver));
        let (sealed, head) = sealed.expect("a seal");
        documents.push(sealed.to_vec().expect("a document"));
        heads.push(head);
    }
    (documents, trusted, heads[2])
}

/// Makes an input of a valid one, with a few changes, or of nothing.
fn mutate(rng: &mut StdRng, valid: &[&Vec<u8>], input: &mut Vec<u8>) {
    input.clear();
    if rng.random_ratio(1, 50) {
        let length = rng.random_range(0..200);
        input.extend((0..length).map(|_| rng.random::<u8>()));
        return;
    }
    input.extend_from_slice(valid[rng.random_range(0..valid.len())]);
    for _ in 0..rng.random_range(0..4) {
        change(rng, valid, input);
    }
}

fn change(rng: &mut StdRng, valid: &[&Vec<u8>], input: &mut Vec<u8>) {
    const NUMBERS: [i64; 12] = [
        0,
        1,
        -1,
        i64::MAX,
        i64::MIN,
        i32::MAX as i64,
        i32::MIN as i64,
        u32::MAX as i64,
        48,
        64,
        1 << 40,
        0x4c57_4b43,
    ];
    const TEXTS: [&str; 16] = [
        "null",
        "-1",
        "0",
        "9223372036854775807",
        "9223372036854775808",
        "1e9",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "[[[[[[[[",
        "\"a\":",
        "\\u0000",
        "\\ud800",
    ];
    let length = input.len();
    let at = rng.random_range(0..=length);
    let some = rng.random_range(0..=(length - at).min(64));
    match rng.random_range(0..10) {
        0 if at < length => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < length => input[at] = rng.random(),
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + some)),
        4 => {
            let repeated: Vec<u8> = input[at..at + some].to_vec();
            drop(input.splice(at..at, repeated));
        }
        5 => {
            let more: Vec<u8> = (0..rng.random_range(1..20)).map(|_| rng.random()).collect();
            drop(input.splice(at..at, more));
        }
        6 | 7 => {
            // A number that means something, of any width and either byte order.
            let near = i64::try_from(length).expect("a length") + rng.random_range(-16..16);
            let number = match rng.random_range(0..=NUMBERS.len()) {
                chosen if chosen < NUMBERS.len() => NUMBERS[chosen],
                _ => near,
            };
            let mut bytes = number.to_le_bytes();
            let width = [1, 2, 4, 8][rng.random_range(0..4)];
            let bytes = &mut bytes[..width];
            if rng.random() {
                bytes.reverse();
            }
            let room = bytes.len().min(length - at);
            input[at..at + room].copy_from_slice(&bytes[..room]);
        }
        8 => {
            let other = valid[rng.random_range(0..valid.len())];
            let from = rng.random_range(0..=other.len());
            let to = rng.random_range(from..=other.len());
            drop(input.splice(at..at + some, other[from..to].iter().copied()));
        }
        _ => {
            let text = TEXTS[rng.random_range(0..TEXTS.len())];
            // In the place of a number, where there is one at hand.
            let start = input[at..].iter().position(u8::is_ascii_digit);
            let start = start.map_or(at, |skipped| at + skipped);
            let digits = input[start..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            drop(input.splice(start..start + digits, text.bytes()));
        }
    }
}
