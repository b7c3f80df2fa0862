//! A broker that is killed and comes back.

use std::time::Duration;

use super::cluster::{Cluster, log};
use super::publishing::writers_lose_nothing;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_costs_calls_their_answer_and_no_event() {
    let Some(kafka) = Cluster::start(&[]) else {
        return;
    };
    let mut config = kafka.own_topic(4);
    config.publish_timeout = Duration::from_secs(3);
    config.request_timeout = Duration::from_secs(5);
    let log = log(&config).await;
    writers_lose_nothing(&config, &log, |progress| {
        let kafka = &kafka;
        async move {
            progress.more_applied(2_000).await;
            kafka.script(&["kill", "1"]);
            progress.a_failure().await;
            kafka.script(&["resume", "1"]);
            progress.more_applied(500).await;
        }
    })
    .await;
    log.shutdown().await;
}
