//! Commands that ask a cluster for its metadata, against a mock cluster that librdkafka starts in
//! this process, and against Apache Kafka where one is there.
#![allow(clippy::cast_possible_wrap)] // numbers of a few hundred records

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEvent, MetadataEventLog as _,
};
use krabka_remote_storage::{
    RemoteLogSegmentId, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::metadata_topic::{answers, records, rows};
use crate::program::{Run, Scratch, command, consumed, finish, run, special_offset, test_data};

const PARTITIONS: i32 = 5;

/// A cluster with a metadata topic of the test's own.
struct Cluster {
    bootstrap: String,
    topic: String,
    log: Arc<KafkaMetadataEventLog>,
    runtime: Runtime,
    _mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Cluster {
    fn mock() -> Self {
        let mock = MockCluster::new(1).unwrap();
        let topic = "__remote_log_metadata";
        mock.create_topic(topic, PARTITIONS, 1).unwrap();
        Self::on(mock.bootstrap_servers(), topic.to_owned(), Some(mock))
    }

    /// A topic of Apache Kafka, where a broker is meant to be there.
    fn kafka() -> Option<Self> {
        let bootstrap = variable("BOOTSTRAP_SERVERS")?;
        let topic = format!("metadata-{}", Uuid::new_v4());
        Some(Self::on(bootstrap, topic, None))
    }

    /// An empty topic of each kind of cluster that is there.
    fn all() -> Vec<Self> {
        let mut clusters = vec![Self::mock()];
        clusters.extend(Self::kafka());
        clusters
    }

    fn on(
        bootstrap: String,
        topic: String,
        mock: Option<MockCluster<'static, DefaultProducerContext>>,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let mut config = KafkaMetadataLogConfig::new(bootstrap.clone());
        config.topic.clone_from(&topic);
        config.num_partitions = PARTITIONS;
        config.replication = 1;
        config.min_isr = None;
        let log = runtime
            .block_on(KafkaMetadataEventLog::start(config))
            .unwrap();
        Self {
            bootstrap,
            topic,
            log,
            runtime,
            _mock: mock,
        }
    }

    /// The events that a real Kafka wrote.
    fn with_kafkas_events(self) -> Self {
        for record in records() {
            let offset = self.publish(record.metadata_partition, record.value);
            assert_eq!(offset, record.offset);
        }
        self
    }

    fn publish(&self, partition: i32, value: impl Into<Bytes>) -> i64 {
        let published = self.log.publish(partition, value.into());
        self.runtime.block_on(published).unwrap()
    }

    /// The arguments, with those that name the cluster.
    fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = arguments.to_vec();
        all.extend([
            "--bootstrap",
            &self.bootstrap,
            "--metadata-topic",
            &self.topic,
        ]);
        all
    }

    fn run(&self, arguments: &[&str]) -> Run {
        run(&self.arguments(arguments))
    }
}

/// What the tests are told of Apache Kafka; `None` where no broker is meant to be there.
fn variable(name: &str) -> Option<String> {
    let name = format!("KRABKA_TEST_KAFKA_{name}");
    let value = env::var(&name).ok();
    assert!(
        value.is_some() || env::var_os("KRABKA_TEST_SERVERS").is_none(),
        "the servers are meant to be there, but {name} is not set"
    );
    if value.is_none() {
        eprintln!("without Apache Kafka: {name} is not set");
    }
    value
}

/// The lines of the test data, without what the log does not tell.
fn expected_records() -> Vec<Value> {
    let events = fs::read_to_string(test_data("metadata-topic/events.ndjson")).unwrap();
    let lines = events.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("timestamp_ms");
        record
    });
    lines.collect()
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The segment of the test data that begins here, and the metadata partition with its events.
fn segment_from(topic: &str, partition: i32, start_offset: i64) -> (i32, RemoteLogSegmentId) {
    let found = records().into_iter().find_map(|record| {
        let tp = record.event.topic_id_partition();
        let is_of_partition = tp.topic == topic && tp.partition == partition;
        match &record.event {
            MetadataEvent::AddSegment(add)
                if is_of_partition && add.start_offset() == start_offset =>
            {
                Some((
                    record.metadata_partition,
                    add.remote_log_segment_id().clone(),
                ))
            }
            _ => None,
        }
    });
    found.unwrap()
}

/// The event that a segment's deletion has begun, of an early time.
fn begins_deletion(id: RemoteLogSegmentId) -> Bytes {
    let state = RemoteLogSegmentState::DeleteSegmentStarted;
    let update = RemoteLogSegmentMetadataUpdate::new(id, 5, None, state, 1);
    MetadataEvent::UpdateSegment(update).encode()
}

/// A tier that Kafka wrote, to be changed.
fn kafkas_tier() -> Scratch {
    let scratch = Scratch::new();
    copy_dir(
        &test_data("tier/kafka-tiered-storage"),
        &scratch.path("tier"),
    );
    scratch
}

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
        let first = before.count() as i64;
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
            .filter(|line| line["type"].is_string() && line["type"] != "unnamed_segment");
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

#[test]
fn what_is_wrong_with_a_cluster_is_said_without_secrets() {
    let cluster = Cluster::mock();
    let scratch = Scratch::new();
    let config = scratch.path("client.properties");
    let path = config.to_str().unwrap();
    let dump = cluster.arguments(&["metadata", "dump"]);
    let with_config = |text: &str| {
        fs::write(&config, text).unwrap();
        let mut by_option = dump.clone();
        by_option.extend(["--kafka-config", path]);
        let by_option = run(&by_option);
        let by_variable = finish(command(&dump).env("KRABKA_KAFKA_CONFIG", path));
        assert_eq!(by_option.stderr, by_variable.stderr);
        by_option
    };
    let secret = "hunter2-of-all";
    let login = format!(
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
         username=\"u\" password=\"{secret}\";"
    );
    for (text, says) in [
        (
            "acks.of=all".to_owned(),
            "line 1: acks.of is not understood here",
        ),
        (format!("{login}\n"), "sasl.mechanism is missing"),
        (
            format!("\nssl.keystore.password={secret}"),
            "line 2: ssl.keystore.password",
        ),
        (
            format!("password=\"{secret}\";"),
            "line 1 is not understood here",
        ),
    ] {
        let run = with_config(&text).fails(1, &["client.properties does not hold: ", says]);
        assert!(!run.stderr.contains(secret), "{}", run.stderr);
    }
    with_config("# nothing\nsecurity.protocol=PLAINTEXT\n").ok();
    fs::remove_file(&config).unwrap();
    finish(command(&dump).env("KRABKA_KAFKA_CONFIG", path)).fails(1, &["cannot read", path]);

    let no_topic = [
        "--bootstrap",
        &cluster.bootstrap,
        "--metadata-topic",
        "no such topic",
    ];
    run(&[&["metadata", "stats"], &no_topic[..]].concat())
        .fails(2, &["topic is \"no such topic\""]);
    run(&["metadata", "stats", "--bootstrap", "localhost"]).fails(2, &["`host:port`"]);
    // Nobody listens there.
    let nobody = [
        "metadata",
        "stats",
        "--bootstrap",
        "127.0.0.1:9",
        "--retry-timeout",
        "1",
    ];
    run(&nobody).fails(
        1,
        &["cannot open topic __remote_log_metadata at 127.0.0.1:9"],
    );
    run(&["metadata", "dump"]).fails(2, &["--bootstrap"]);
    let url = scratch.url();
    fs::create_dir(scratch.path("tier")).unwrap();
    let read = [
        "read",
        &url,
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    run(&[&read[..], &["--kafka-config", "x"]].concat()).fails(2, &["--bootstrap"]);
    cluster.run(&read).fails(
        1,
        &["topic \"t\" partition 0 is not in the metadata in topic "],
    );
}

/// A listener with TLS, where a broker is meant to be there, and client properties for it.
struct Secured {
    bootstrap: String,
    authority: String,
    user: String,
    password: String,
}

impl Secured {
    fn new() -> Option<Self> {
        let variable = |name: &str| variable(&format!("SECURE_{name}"));
        Some(Self {
            bootstrap: variable("BOOTSTRAP_SERVERS")?,
            authority: variable("CA")?,
            user: variable("USER")?,
            password: variable("PASSWORD")?,
        })
    }

    fn properties(&self, mechanism: &str, password: &str) -> String {
        let module = if mechanism == "PLAIN" {
            "plain.Plain"
        } else {
            "scram.Scram"
        };
        format!(
            "security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n\
             sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required \\\n  \
             username=\"{}\" password=\"{password}\";\nssl.truststore.type=PEM\n",
            self.user
        )
    }
}

#[test]
fn a_secured_cluster_is_reached_with_client_properties() {
    let (Some(cluster), Some(secured)) = (Cluster::kafka(), Secured::new()) else {
        return;
    };
    let cluster = cluster.with_kafkas_events();
    let scratch = Scratch::new();
    let config = scratch.path("client.properties");
    let stats = |text: &str| {
        fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let mut stats = vec!["metadata", "stats", "--json", "--retry-timeout", "5"];
        stats.extend([
            "--bootstrap",
            &secured.bootstrap,
            "--metadata-topic",
            &cluster.topic,
        ]);
        stats.extend(["--kafka-config", config]);
        run(&stats)
    };
    let file = format!("ssl.truststore.location={}\n", secured.authority);
    let inline = fs::read_to_string(&secured.authority).unwrap();
    let inline = format!(
        "ssl.truststore.certificates={}\n",
        inline.trim_end().replace('\n', " \\\n")
    );
    for (mechanism, authority) in [
        ("PLAIN", &file),
        ("SCRAM-SHA-256", &inline),
        ("SCRAM-SHA-512", &file),
    ] {
        let text = secured.properties(mechanism, &secured.password) + authority;
        let total = stats(&text).ok().json().pop().unwrap();
        assert_eq!(total["records"], json!(records().len()), "{mechanism}");
    }
    let wrong = "no-such-secret";
    let refused = stats(&(secured.properties("PLAIN", wrong) + &file));
    let refused = refused.fails(1, &["cannot open topic metadata-"]);
    assert!(!refused.stderr.contains(wrong), "{}", refused.stderr);
}
