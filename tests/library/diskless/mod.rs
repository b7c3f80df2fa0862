//! The diskless formats: their bytes, what is refused, and what a projection answers.

mod bad_input;
mod captures;
mod goldens;
mod history;
mod objects;
mod projection;
mod reads;
mod retention;
mod samples;
mod seals;
