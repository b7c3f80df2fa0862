//! Two functions beside each other in one run, and the ratio of their times.

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

/// Measures `run` as a bench of the group, and answers the time of one call: that of the fastest
/// tenth of the samples, which other work on the machine disturbs least.
pub fn sampled(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut run: impl FnMut(u64),
) -> Duration {
    let mut samples = Vec::new();
    group.bench_function(name, |b| {
        b.iter_custom(|calls| {
            let began = Instant::now();
            run(calls);
            let took = began.elapsed();
            samples.push(took.as_secs_f64() / calls as f64);
            took
        });
    });
    samples.sort_unstable_by(f64::total_cmp);
    Duration::from_secs_f64(samples[samples.len() / 10])
}

/// Prints how much longer `this` takes than `base`, beside what it may.
pub fn ratio(what: &str, this: Duration, base: Duration, bar: f64) {
    let ratio = this.as_secs_f64() / base.as_secs_f64();
    println!("{what}: {this:.2?} / {base:.2?} = {ratio:.2} (bar: at most {bar})\n");
}
