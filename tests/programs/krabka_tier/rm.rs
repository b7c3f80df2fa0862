use serde_json::Value;

use crate::support::program::{Scratch, run};

#[test]
fn nothing_is_removed_without_yes() {
    let scratch = Scratch::with_tier_of(&["orders-0", "payments-1"]);
    let before = scratch.tier_files();
    let text = run(&["rm", &scratch.url(), "--topic", "orders"])
        .ok()
        .text();
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("would remove orders-0"))
            .count(),
        6
    );
    assert!(
        text.contains("nothing was removed: --yes removes 6 items"),
        "{text}"
    );
    assert!(scratch.tier_files() == before);
}

#[test]
fn a_topic_a_partition_or_a_segment_is_removed_and_nothing_else() {
    let scratch = Scratch::with_tier_of(&["orders-0", "orders-2", "payments-1"]);
    let url = scratch.url();
    let count = |topic: &str| {
        let files = scratch.tier_files();
        files
            .iter()
            .filter(|(path, _)| path.to_str().unwrap().starts_with(topic))
            .count()
    };
    assert_eq!(
        (count("orders-0-"), count("orders-2-"), count("payments-1-")),
        (30, 85, 16)
    );

    let removed = run(&[
        "rm",
        &url,
        "--topic",
        "orders",
        "--partition",
        "2",
        "--yes",
        "--json",
    ])
    .ok()
    .json();
    assert_eq!(removed.len(), 17);
    assert!(
        removed
            .iter()
            .all(|event| event["removed"] == true && event["type"] == "segment")
    );
    assert_eq!(
        (count("orders-0-"), count("orders-2-"), count("payments-1-")),
        (30, 0, 16)
    );

    let ls = run(&["ls", &url, "--topic", "orders", "--json"])
        .ok()
        .json();
    assert_eq!(ls.len(), 1, "the empty directory is no partition");
    let id = ls[0]["segments"][3]["segment_id"]
        .as_str()
        .unwrap()
        .to_owned();
    run(&["rm", &url, "--topic", "orders", "--segment", &id, "--yes"]).ok();
    assert_eq!(count("orders-0-"), 25);
    run(&["rm", &url, "--topic", "orders", "--segment", &id, "--yes"])
        .fails(1, &["no segment", &id]);

    run(&["rm", &url, "--topic", "payments", "--yes"]).ok();
    assert_eq!((count("orders-0-"), count("payments-1-")), (25, 0));
    run(&["rm", &url, "--topic", "nothing", "--yes"]).fails(1, &["\"nothing\"", "is not in"]);
}

#[test]
fn what_a_cut_off_copy_left_is_removed_too() {
    let scratch = Scratch::with_tier_of(&["orders-0"]);
    std::fs::remove_file(scratch.tier_file(564, ".log")).unwrap();
    let url = scratch.url();
    let left = run(&["ls", &url, "--incomplete", "--json"]).ok().json();
    let id = left[0]["segment_id"].as_str().unwrap();
    let removed = run(&[
        "rm",
        &url,
        "--topic",
        "orders",
        "--segment",
        id,
        "--yes",
        "--json",
    ])
    .ok();
    assert_eq!(removed.json()[0]["objects"], Value::from(4));
    assert_eq!(run(&["ls", &url, "--incomplete", "--json"]).ok().text(), "");
    assert_eq!(scratch.tier_files().len(), 25);
}
