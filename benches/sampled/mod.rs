//! Two functions in turns in one run, and the ratio of their times.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::cast_precision_loss,
    reason = "shared by benches"
)]

pub mod tier;

use std::time::{Duration, Instant};

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;

/// One of the functions: makes so many calls.
pub type Run<'a> = &'a mut dyn FnMut(u64);

/// Measures `this` and `base` as benches of the group, and prints how many times as long `this`
/// takes, beside what it may.
///
/// Each sample of `this` is taken right after one of `base` with as many calls, so that what else
/// the machine does disturbs both alike; the ratio is the median over these pairs.
pub fn compare(
    mut group: BenchmarkGroup<'_, WallTime>,
    (base_name, base): (&str, Run<'_>),
    (this_name, this): (&str, Run<'_>),
    bar: f64,
) {
    let time = |run: &mut dyn FnMut(u64), calls: u64| {
        let began = Instant::now();
        run(calls);
        began.elapsed()
    };
    group.bench_function(base_name, |b| b.iter_custom(|calls| time(base, calls)));
    let mut pairs: Vec<(f64, Duration, Duration)> = Vec::new();
    group.bench_function(this_name, |b| {
        b.iter_custom(|calls| {
            let (base, this) = (time(base, calls), time(this, calls));
            let divisor = u32::try_from(calls).expect("a number of calls");
            let ratio = this.as_secs_f64() / base.as_secs_f64();
            pairs.push((ratio, this / divisor, base / divisor));
            this
        });
    });
    group.finish();
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((ratio, this, base)) = pairs.get(pairs.len() / 2) {
        println!("{this_name} / {base_name}: {this:.2?} / {base:.2?} = {ratio:.2}, bar {bar}\n");
    }
}
