//! Commands that need a cluster, where the program cannot have one or is told of none.

use crate::support::program::{Scratch, run};

#[cfg(not(feature = "kafka"))]
#[test]
fn a_program_without_a_kafka_client_says_how_to_get_one() {
    let scratch = Scratch::with_tier_of(&["orders-2"]);
    let url = scratch.url();
    let read = [
        "read",
        &url,
        "--topic",
        "orders",
        "--partition",
        "2",
        "--offset",
        "0",
    ];
    for arguments in [
        &["metadata", "dump"][..],
        &["metadata", "tail"],
        &["metadata", "stats"],
        &["orphans", &url],
        &read,
    ] {
        let arguments = [arguments, &["--bootstrap", "localhost:9092"]].concat();
        run(&arguments).fails(
            2,
            &["built without the feature `kafka`", "--features kafka"],
        );
    }
    assert!(!run(&read).ok().stdout.is_empty());
}

#[test]
fn the_cluster_has_to_be_named() {
    let scratch = Scratch::with_tier_of(&["orders-2"]);
    let url = scratch.url();
    for arguments in [
        &["metadata", "dump"][..],
        &["metadata", "tail"],
        &["metadata", "stats"],
        &["orphans", &url],
    ] {
        run(arguments).fails(2, &["--bootstrap"]);
    }
    run(&["metadata"]).fails(2, &["dump", "tail", "stats"]);
    let dump = [
        "metadata",
        "dump",
        "--bootstrap",
        "b:1",
        "--user-partition",
        "orders",
    ];
    run(&dump).fails(2, &["a partition is TOPIC-N"]);
}
