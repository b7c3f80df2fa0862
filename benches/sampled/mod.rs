//! Two functions in turns in one run, and the ratio of their times.
#![allow(
    dead_code,
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

/// So many calls of one function are made before the other's turn.
const TURN: u64 = 8;

/// Measures `this` and `base` as benches of the group, and prints how many times as long `this`
/// takes, beside what it may.
///
/// While `this` is measured, `base` is run in turns with it, so that what else the machine does
/// disturbs both alike; the ratio is that of their median turns.
pub fn compare(
    mut group: BenchmarkGroup<'_, WallTime>,
    (base_name, base): (&str, Run<'_>),
    (this_name, this): (&str, Run<'_>),
    bar: f64,
) {
    group.bench_function(base_name, |b| b.iter_custom(|calls| time(base, calls)));
    let (mut base_turns, mut turns) = (Vec::new(), Vec::new());
    group.bench_function(this_name, |b| {
        b.iter_custom(|calls| {
            let mut total = Duration::ZERO;
            for begun in (0..calls).step_by(usize::try_from(TURN).expect("a few")) {
                let turn = TURN.min(calls - begun);
                let (base_took, took) = (time(base, turn), time(this, turn));
                total += took;
                // Calls that take long come in fewer than a turn has.
                if turn == TURN.min(calls) {
                    let turn = u32::try_from(turn).expect("a few");
                    base_turns.push(base_took / turn);
                    turns.push(took / turn);
                }
            }
            total
        });
    });
    group.finish();
    if turns.is_empty() {
        return;
    }
    let (base, this) = (median(base_turns), median(turns));
    let ratio = this.as_secs_f64() / base.as_secs_f64();
    println!("{this_name} / {base_name}: {this:.2?} / {base:.2?} = {ratio:.2}, bar {bar}\n");
}

fn time(run: &mut dyn FnMut(u64), calls: u64) -> Duration {
    let began = Instant::now();
    run(calls);
    began.elapsed()
}

/// The median time of one call.
fn median(mut turns: Vec<Duration>) -> Duration {
    let middle = turns.len() / 2;
    let (_, median, _) = turns.select_nth_unstable(middle);
    *median
}
