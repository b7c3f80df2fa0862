//! `metadata dump`, `tail` and `stats`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Cluster, PARTITIONS, expected_records, kafkas_tier};
use crate::support::metadata_topic::{answers, records, rows};
use crate::support::program::command;

#[test]
fn a_dump_shows_every_record_as_kafkas_own_classes_read_it() {
    for cluster in Cluster::all() {
        let cluster = cluster.with_kafkas_events();
        let expected = expected_records();
        let dump = ["metadata", "dump", "--json"];
        assert_eq!(cluster.run(&dump).ok().json(), expected);

        let of_orders = |record: &&Value| {
            let id = &record["event"]["id"];
            id["topic"] == "orders" && id["partition"] == 1
        };
        let shown = cluster.run(&[&dump[..], &["--user-partition", "orders-1"]].concat());
        let of_orders: Vec<_> = expected.iter().filter(of_orders).cloned().collect();
        assert!(!of_orders.is_empty());
        assert_eq!(shown.ok().json(), of_orders);

        let mut some = dump.to_vec();
        some.extend(["--partition", "0", "--from", "3", "--to", "5"]);
        let offsets: Vec<_> = cluster
            .run(&some)
            .ok()
            .json()
            .iter()
            .map(|record| {
                (
                    record["metadata_partition"].clone(),
                    record["offset"].clone(),
                )
            })
            .collect();
        assert_eq!(offsets, [3, 4, 5].map(|offset| (json!(0), json!(offset))));

        let text = cluster.run(&["metadata", "dump"]).ok().text();
        assert_eq!(text.lines().count(), expected.len());
        let first = "  0          0  orders-0  pgP4AFDjR8eRsEWFrKqIyA  COPY_SEGMENT_STARTED  offsets 0 \
                     to 269, 23.81 KiB, epochs 0 from 0, broker 1 at 1795982193523\n";
        assert!(text.starts_with(first), "{text}");
        cluster
            .run(&["metadata", "dump", "--partition", "5"])
            .fails(1, &["metadata partition 5 is outside of 0..5"]);
        cluster
            .run(&["metadata", "dump", "--from", "5", "--to", "2"])
            .fails(2, &["--from 5 is behind --to 2"]);
        let unknown = ["metadata", "dump", "--user-partition", "order-0"];
        let run = cluster.run(&unknown);
        assert_eq!((run.code, run.stdout.len()), (Some(0), 0));
        let note = "has no event of order-0 there";
        assert!(run.stderr.contains(note), "{}", run.stderr);
    }
}

#[test]
fn poison_records_are_shown_with_their_bytes_and_make_the_program_fail() {
    for cluster in Cluster::all() {
        let finished = records().swap_remove(0);
        cluster.publish(1, "\u{1b}[2Jhello");
        cluster.publish(1, Vec::new());
        cluster.publish(finished.metadata_partition, finished.value);
        cluster.publish(4, vec![7; 1000]);

        let says = ["3 poison records are in the metadata topic"];
        let dump = cluster.run(&["metadata", "dump", "--json"]).fails(1, &says);
        let dump = dump.json();
        assert_eq!(dump.len(), 4);
        let poison: Vec<_> = dump
            .iter()
            .filter(|record| record["event"].is_null())
            .collect();
        let values: Vec<_> = poison
            .iter()
            .map(|record| record["value"].as_str().unwrap())
            .collect();
        assert_eq!(values, ["1b5b324a68656c6c6f", "", &"07".repeat(1000)]);
        assert_eq!(
            poison[1]["poison"],
            "the value is no event of the metadata topic: the value is empty"
        );

        let text = cluster.run(&["metadata", "dump"]).fails(1, &says).text();
        assert!(text.contains("POISON"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("; 1000 bytes: 0707"), "{text}");

        let says = [
            "metadata partition 1 has a poison record at offset 0: the value is no event",
            "metadata partition 1 has a poison record at offset 1: ",
            "metadata partition 4 has a poison record at offset 0: ",
            says[0],
        ];
        let stats = cluster
            .run(&["metadata", "stats", "--json"])
            .fails(1, &says);
        let stats = stats.json();
        let total = stats.last().unwrap();
        assert_eq!(
            (&total["poison"], &total["records"]),
            (&json!(3), &json!(4))
        );
    }
}

#[test]
fn stats_are_those_of_kafkas_own_store() {
    for cluster in Cluster::all() {
        let cluster = cluster.with_kafkas_events();
        let stats = cluster.run(&["metadata", "stats", "--json"]).ok().json();
        let of_type = |name: &str| {
            let of_type = stats.iter().filter(|line| line["type"] == name);
            of_type.cloned().collect::<Vec<_>>()
        };
        let all = expected_records();
        let metadata_partitions = of_type("metadata_partition");
        assert_eq!(metadata_partitions.len(), 5);
        for one in &metadata_partitions {
            let of_partition = all
                .iter()
                .filter(|record| record["metadata_partition"] == one["partition"]);
            let number = json!(of_partition.count());
            assert_eq!((&one["records"], &one["low"]), (&number, &json!(0)));
            assert_eq!(one["high"], number);
        }
        let answers = answers();
        let users = of_type("user_partition");
        assert_eq!(users.len(), answers.len());
        for user in &users {
            let text = |name: &str| user[name].as_str().unwrap();
            let (id, topic) = (text("topic_id"), text("topic"));
            let expected = &answers[&format!("{id}:{topic}:{}", user["partition"])];
            let mut segments = json!({"COPY_SEGMENT_STARTED": 0, "COPY_SEGMENT_FINISHED": 0,
                "DELETE_SEGMENT_STARTED": 0});
            for row in rows(&expected["list_all"]) {
                let number = &mut segments[row["state"].as_str().unwrap()];
                *number = json!(number.as_u64().unwrap() + 1);
            }
            assert_eq!(user["segments"], segments, "{user}");
            let highest: serde_json::Map<_, _> = rows(&expected["highest_offset_for_epoch"])
                .filter(|row| row["offset"].is_i64())
                .map(|row| (row["epoch"].to_string(), row["offset"].clone()))
                .collect();
            assert_eq!(user["highest_offsets"], Value::Object(highest));
        }
        let total = of_type("total");
        assert_eq!(total[0]["records"], json!(all.len()));
        assert_eq!(total[0]["segments"]["COPY_SEGMENT_FINISHED"], 48);
        assert_eq!(stats.last(), total.first());

        let text = cluster.run(&["metadata", "stats"]).ok().text();
        assert!(text.contains(" with 48 finished segments of "), "{text}");
        let one = ["metadata", "stats", "--user-partition", "payments-1"];
        let text = cluster.run(&one).ok().text();
        assert!(text.contains("payments-1  (topic id "), "{text}");
        assert!(!text.contains("orders-0"), "{text}");
    }
}

#[test]
fn a_tail_shows_what_comes_after_it_began() {
    for cluster in Cluster::all() {
        let cluster = cluster.with_kafkas_events();
        let tail = [
            "metadata",
            "tail",
            "--json",
            "--count",
            "2",
            "--user-partition",
            "orders-0",
        ];
        let mut tail = command(&cluster.arguments(&tail))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut note = String::new();
        let mut stderr = BufReader::new(tail.stderr.take().unwrap());
        stderr.read_line(&mut note).unwrap();
        let says = "note: waiting for new records in 5 metadata partitions of topic ";
        assert!(note.starts_with(says), "{note}");
        let of = |topic: &str| {
            let all = records();
            let mut all = all.into_iter();
            all.find(|record| {
                let tp = record.event.topic_id_partition();
                tp.topic == topic && tp.partition == 0
            })
            .unwrap()
        };
        for topic in ["orders", "payments", "orders"] {
            let record = of(topic);
            cluster.publish(record.metadata_partition, record.value);
        }
        let mut shown = String::new();
        tail.stdout
            .take()
            .unwrap()
            .read_to_string(&mut shown)
            .unwrap();
        assert_eq!(tail.wait().unwrap().code(), Some(0));
        let shown: Vec<Value> = shown
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let orders = of("orders");
        assert_eq!(shown.len(), 2);
        let before = records();
        let before = before
            .iter()
            .filter(|r| r.metadata_partition == orders.metadata_partition);
        let first = i64::try_from(before.count()).unwrap();
        assert_eq!(shown[0]["offset"].as_i64(), Some(first));
        assert!(shown[1]["offset"].as_i64() > Some(first));
        for record in &shown {
            assert_eq!(
                record["event"],
                expected_records()[usize::try_from(orders.offset).unwrap()]["event"]
            );
        }

        let nothing = cluster.run(&["metadata", "tail", "--for", "1"]);
        assert_eq!(nothing.code, Some(0), "{nothing:?}");
        assert_eq!(nothing.text(), "");
    }
}

#[test]
fn a_tail_names_a_topic_that_was_deleted_and_made_again() {
    let says = "was deleted and made again: run the command again";
    a_tail_ends(Cluster::make_again, says);
}

#[test]
fn a_tail_names_a_topic_that_was_deleted() {
    a_tail_ends(Cluster::delete, "does not exist any more");
}

#[test]
fn a_tail_names_a_topic_to_which_partitions_were_added() {
    let says = "had 5 partitions when the log was opened, and has 6 now";
    a_tail_ends(Cluster::add_a_partition, says);
}

fn a_tail_ends(change: fn(&Cluster), says: &str) {
    let Some(cluster) = Cluster::kafka() else {
        return;
    };
    cluster.publish(0, "before");
    let mut tail = command(&cluster.arguments(&["metadata", "tail"]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(tail.stderr.take().unwrap());
    let mut note = String::new();
    stderr.read_line(&mut note).unwrap();
    change(&cluster);
    let mut error = String::new();
    stderr.read_to_string(&mut error).unwrap();
    assert_eq!(tail.wait().unwrap().code(), Some(1));
    assert!(error.contains(says), "{error}");
}

#[test]
fn events_that_nobody_applies_are_told_of_before_what_they_name_is_called_an_orphan() {
    for cluster in Cluster::all() {
        // As they stand after partitions were added to a topic: each in the partition of before.
        for record in records() {
            cluster.publish((record.metadata_partition + 1) % PARTITIONS, record.value);
        }
        let says = "another metadata partition than that in which brokers look for them";
        let stats = cluster.run(&["metadata", "stats"]);
        assert!(stats.stderr.contains(says), "{stats:?}");

        let tier = kafkas_tier();
        let url = tier.url();
        let orphans = cluster.run(&["orphans", &url, "--json"]);
        assert!(orphans.stderr.contains(says), "{orphans:?}");
        let summary: Value = serde_json::from_str(orphans.text().lines().last().unwrap()).unwrap();
        assert_eq!(summary["misplaced"], records().len(), "{summary}");
    }
}
