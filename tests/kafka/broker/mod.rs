//! The metadata manager and the reader beside Apache Kafka: what each writes, the other reads; and
//! what happens when brokers die, topics change, and rights are missing.
//!
//! Switched on by `tests/run.sh kafka`, which starts the broker that most tests share: tiered, and
//! with `SASL_SSL`. Tests that stop brokers start their own, one such test at a time. The programs of
//! Kafka's classes are in `tests/kafka`, whose README says what they do.

mod cluster;
mod copied;
mod histories;
mod killed;
mod moved;
mod oracle;
mod publishing;
mod secured;
mod tiered;
mod topics;
