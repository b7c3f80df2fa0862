//! What the steps of a fetch cost.
//!
//! `index` answers: how much is saved by searching an offset index in place, instead of parsing it
//! before each search? 2 MiB is the index of a 1 GiB segment with an entry for every 4 KiB.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use krabka_remote_storage::index::{OffsetIndex, parse_offset_index, position_for_relative_offset};

const ENTRIES: u32 = 2 * 1024 * 1024 / 8;

fn index(c: &mut Criterion) {
    let bytes: Vec<u8> = (0..ENTRIES)
        .flat_map(|entry| [(entry * 10).to_be_bytes(), (entry * 4096).to_be_bytes()])
        .flatten()
        .collect();
    // Another place each time, so that the branches are not learnt.
    let mut targets = (0..).map(|step: u32| step.wrapping_mul(2_654_435_761) % (ENTRIES * 10));
    let mut target = move || targets.next().unwrap_or_default();

    let mut group = c.benchmark_group("index");
    group.bench_function("parse_then_search", |b| {
        b.iter(|| {
            let entries = parse_offset_index(black_box(&bytes)).expect("index");
            position_for_relative_offset(entries, target())
        });
    });
    group.bench_function("search", |b| {
        b.iter(|| OffsetIndex::new(0, black_box(&bytes)).lookup(target().into()));
    });
    group.finish();
}

criterion_group!(benches, index);
criterion_main!(benches);
