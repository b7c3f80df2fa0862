//! The diskless formats: their bytes, what is refused, and what a projection answers.

mod bad_input;
#[path = "../support/batches.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::pedantic)]
mod batches;
mod captures;
mod goldens;
mod history;
mod objects;
mod projection;
mod reads;
mod retention;
mod samples;
mod seals;
