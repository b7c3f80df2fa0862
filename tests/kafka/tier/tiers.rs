//! `orphans`, and `read` and `restore` by the segments that a cluster names.

use std::fs;
use std::path::Path;

use krabka_remote_storage::topic::MetadataEvent;
use serde_json::json;

use super::{Cluster, begins_deletion, kafkas_tier, segment_from};
use crate::support::metadata_topic::records;
use crate::support::program::{consumed, run, special_offset, test_data};

#[test]
fn a_tier_and_its_metadata_agree_until_one_of_them_is_changed() {
    for cluster in Cluster::all() {
        let cluster = cluster.with_kafkas_events();
        let tier = kafkas_tier();
        let url = tier.url();
        let orphans = ["orphans", &url, "--json"];
        let found = cluster.run(&orphans).ok().json();
        let summary = found.last().unwrap();
        assert_eq!(summary["problems"], 0);
        // The 48 that are finished, and one whose copy never ended.
        assert_eq!(summary["segments"], 49);
        assert!(
            found
                .iter()
                .all(|line| line["size_bytes"].as_u64().unwrap_or(0) == 0)
        );

        let log = tier.tier_file_of("orders-0-", 270, ".log");
        let bytes = fs::read(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let index = tier.tier_file_of("orders-0-", 0, ".index");
        fs::remove_file(index).unwrap();
        let longer = tier.tier_file_of("orders-1-", 0, ".log");
        fs::write(&longer, [fs::read(&longer).unwrap(), vec![0]].concat()).unwrap();
        let stranger = longer.with_file_name("notes.txt");
        fs::write(stranger, "do not lose").unwrap();
        let unnamed = longer.with_file_name("00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log");
        fs::write(unnamed, &bytes).unwrap();

        let says = ["5 differences have to be looked at between file://"];
        let found = cluster.run(&orphans).fails(1, &says).json();
        let problems: Vec<_> = found
            .iter()
            .filter(|line| line["problem"] == true)
            .map(|line| {
                json!([
                    line["type"],
                    line["topic"],
                    line["partition"],
                    line["first_offset"]
                ])
            })
            .collect();
        assert_eq!(
            problems,
            [
                json!(["missing_objects", "orders", 0, 0]),
                json!(["missing_objects", "orders", 0, 270]),
                json!(["unnamed_segment", "orders", 1, 0]),
                json!(["other_size", "orders", 1, 0]),
                json!(["unknown_object", "orders", 1, null]),
            ]
        );
        let summary = json!({
            "type": "summary", "partitions": 7, "segments": 50, "findings": 6, "problems": 5,
            "misplaced": 0
        });
        assert_eq!(found.last(), Some(&summary));
        let text = cluster.run(&["orphans", &url]).fails(1, &says).text();
        for says in [
            "missing     orders-0 from offset 0, segment pgP4AFDjR8eRsEWFrKqIyA: .index not in the tier",
            "not named   orders-1 from offset 0, segment AAAAAAAAAAAAAAAAAAAAAQ: no metadata names 23.85 KiB in 1 object",
            "unknown     orders-1: ",
            "50 segments of 7 partitions compared: ",
        ] {
            assert!(text.contains(says), "{says:?} in {text}");
        }
        let payments = ["orphans", &url, "--topic", "payments", "--json"];
        cluster.run(&payments).ok();

        cluster.publish(1, "no event");
        let note = "note: 1 poison record is in topic ";
        let run = cluster.run(&payments);
        assert_eq!(run.code, Some(0));
        assert!(run.stderr.starts_with(note), "{}", run.stderr);
    }
}

#[test]
fn copies_and_deletions_that_have_begun_are_told_by_their_age() {
    let cluster = Cluster::mock();
    let all = records();
    for topic in ["orders", "payments"] {
        let mut all = all.iter();
        let add = all.find(|record| record.event.topic_id_partition().topic == topic);
        let add = add.unwrap();
        let (partition, value) = (add.metadata_partition, add.value.clone());
        cluster.publish(partition, value);
        if let ("payments", MetadataEvent::AddSegment(add)) = (topic, &add.event) {
            let id = add.remote_log_segment_id().clone();
            cluster.publish(partition, begins_deletion(id));
        }
    }
    let tier = kafkas_tier();
    let of_topics = |more: &[&str], topic: &str| {
        let url = tier.url();
        let mut arguments = vec!["orphans", &url, "--json", "--topic", topic];
        arguments.extend(more);
        let found = cluster.run(&arguments).json();
        let named = found
            .into_iter()
            .filter(|line| line["type"] != "unnamed_segment" && line["type"] != "summary");
        named.collect::<Vec<_>>()
    };
    let orders = of_topics(&["--older-than", "9000000000"], "orders");
    assert_eq!(orders.len(), 1);
    assert_eq!(
        (&orders[0]["type"], &orders[0]["problem"]),
        (&json!("copy_in_progress"), &json!(false))
    );
    assert_eq!(orders[0]["since_ms"], 1_795_982_193_523_i64);
    assert_eq!(orders[0]["objects"].as_array().unwrap().len(), 5);
    let payments = of_topics(&[], "payments");
    assert_eq!(payments.len(), 1);
    assert_eq!(
        (&payments[0]["type"], &payments[0]["since_ms"]),
        (&json!("being_deleted"), &json!(5))
    );
}

#[test]
fn reads_take_the_segments_that_the_cluster_names() {
    for cluster in Cluster::all() {
        let cluster = cluster.with_kafkas_events();
        let tier = kafkas_tier();
        let url = tier.url();
        for (topic, partition) in [("orders", "0"), ("payments", "0"), ("trimmed", "0")] {
            let number = partition.parse().unwrap();
            let earliest = special_offset(topic, number, "earliest");
            let first = earliest.to_string();
            let mut read = vec!["read", &url, "--topic", topic, "--partition", partition];
            read.extend(["--offset", &first]);
            let last = special_offset(topic, number, "latest_tiered");
            let shown = cluster.run(&read).ok().text();
            assert!(shown == consumed(topic, number, earliest, last), "{topic}");
            read.extend(["--format", "raw"]);
            assert!(
                cluster.run(&read).ok().stdout == run(&read).ok().stdout,
                "{topic}"
            );
        }

        // The segment behind the last one, of a copy that no metadata names: only a listing takes it.
        let active = test_data("partitions/orders-0/00000000000000001735.log");
        let name = "00000000000000001735-AAAAAAAAAAAAAAAAAAAAAQ.log";
        let dir = tier.tier_file_of("orders-0-", 0, ".log");
        fs::copy(active, dir.with_file_name(name)).unwrap();
        let read = [
            "read",
            &url,
            "--topic",
            "orders",
            "--partition",
            "0",
            "--offset",
            "0",
        ];
        let last = special_offset("orders", 0, "latest_tiered");
        let expected = consumed("orders", 0, 0, last);
        assert!(cluster.run(&read).ok().text() == expected);

        let listed = run(&read).text();
        assert!(listed.len() > expected.len() && listed.starts_with(&expected));

        // One that has lost its log is damage, and one that is being deleted is not read any more.
        let log = tier.tier_file_of("orders-0-", 564, ".log");
        fs::remove_file(log).unwrap();
        let says = [
            "segment Hk-c8kTdT22oXlDRDAHB8Q at offset 564 is damaged",
            "the metadata names segment Hk-c8kTdT22oXlDRDAHB8Q of orders-0",
            "as finished, and its `.log` is not in the tier",
        ];
        let before = cluster.run(&read).fails(1, &says);
        assert!(before.text() == consumed("orders", 0, 0, 563));
        let (partition, id) = segment_from("orders", 0, 564);
        cluster.publish(partition, begins_deletion(id));
        let around = cluster.run(&read);
        assert_eq!(around.code, Some(0), "{around:?}");
        let gap = "note: offsets 564 to 899 are in no segment of the tier\n";
        assert_eq!(around.stderr, gap);
        let behind = consumed("orders", 0, 900, last);
        assert!(around.text() == consumed("orders", 0, 0, 563) + &behind);
    }
}

#[test]
fn restored_directories_are_those_of_the_listing_where_the_two_agree() {
    let cluster = Cluster::mock().with_kafkas_events();
    let tier = kafkas_tier();
    let url = tier.url();
    let restore = |by: &str, more: &[&str]| {
        let to = tier.path(by).join("orders-0");
        let mut arguments = vec!["restore", &url, "--topic", "orders", "--partition", "0"];
        let to_text = to.to_str().unwrap().to_owned();
        fs::create_dir_all(tier.path(by)).unwrap();
        arguments.extend(["--json", "--to", &to_text]);
        arguments.extend(more);
        (
            to,
            if by == "listing" {
                run(&arguments)
            } else {
                cluster.run(&arguments)
            },
        )
    };
    let files = |dir: &Path| {
        let mut files: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    fs::read(path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    let (listing, run) = restore("listing", &[]);
    run.ok();
    let (named, run) = restore("cluster", &[]);
    let restored = run.ok().json();
    assert_eq!(restored[0]["segments"], 6);
    assert!(files(&listing) == files(&named));

    // Without its checkpoint the newest segment is as the metadata has it, and that is told.
    let checkpoint = tier.tier_file_of("orders-0-", 1422, ".leader_epoch_checkpoint");
    fs::remove_file(checkpoint).unwrap();
    let (_, run) = restore("strict", &[]);
    run.fails(1, &["has lost its leader epochs", "--allow-missing"]);
    let (mended, run) = restore("mended", &["--allow-missing"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(files(&mended) == files(&named));

    let log = tier.tier_file_of("orders-0-", 564, ".log");
    fs::remove_file(log).unwrap();
    let (_, run) = restore("damaged", &["--allow-missing"]);
    run.fails(
        1,
        &[
            "at offset 564 is damaged",
            "its `.log` is not in the tier",
            "--allow-gaps",
        ],
    );
}
