//! The progress bar of a copy: on a terminal only, on standard error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use krabka_remote_storage::model::CopyProgress;
use tokio::task::JoinHandle;

use super::plan::Planned;

const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Shows on a terminal that something is being done, until it is finished.
pub(super) fn spinner(text: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(text);
    spinner.enable_steady_tick(REDRAWN_EVERY);
    spinner
}

/// A bar of this many bytes. Hidden, unless standard error is a terminal.
pub(crate) fn bytes_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template(
        "{bar:30} {bytes:>11} of {total_bytes}  {binary_bytes_per_sec:>13}  {eta} left",
    ) {
        bar.set_style(style);
    }
    bar
}

/// One bar for all copies together.
pub(super) struct Bars {
    bar: ProgressBar,
    running: Arc<Mutex<Running>>,
    redraw: JoinHandle<()>,
}

#[derive(Default)]
struct Running {
    copies: Vec<CopyProgress>,
    bytes_of_ended: u64,
}

impl Running {
    fn bytes_done(&self) -> u64 {
        let running = self.copies.iter().map(|copy| copy.snapshot().bytes_done);
        self.bytes_of_ended + running.sum::<u64>()
    }
}

/// A copy that the bar watches.
pub(super) struct Watched<'a> {
    bars: &'a Bars,
    progress: CopyProgress,
}

impl Bars {
    pub(super) fn new(copies: &[Planned]) -> Self {
        let bytes = copies.iter().map(|copy| copy.size_bytes).sum();
        let bar = bytes_bar(bytes);
        let running = Arc::new(Mutex::new(Running::default()));
        let redraw = tokio::spawn({
            let (bar, running) = (bar.clone(), Arc::clone(&running));
            async move {
                loop {
                    tokio::time::sleep(REDRAWN_EVERY).await;
                    bar.set_position(lock(&running).bytes_done());
                }
            }
        });
        Self {
            bar,
            running,
            redraw,
        }
    }

    pub(super) fn watch(&self, progress: &CopyProgress) -> Watched<'_> {
        lock(&self.running).copies.push(progress.clone());
        Watched {
            bars: self,
            progress: progress.clone(),
        }
    }

    /// Takes the bar away while something else is printed.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn finish(&self) {
        self.redraw.abort();
        self.bar.finish_and_clear();
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut running = lock(&self.bars.running);
        running.copies.retain(|copy| *copy != self.progress);
        running.bytes_of_ended += self.progress.snapshot().bytes_done;
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
