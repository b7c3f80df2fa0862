//! The metadata log on Kafka: against librdkafka's mock cluster, against a broker that says what a
//! test wants, and, where `tests/run.sh` has started one, against Apache Kafka itself.

mod brokers;
mod configuration;
mod fake_broker;
mod fetching;
mod mock;
mod provisioning;
mod publishing;
mod reading;
