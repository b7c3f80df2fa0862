//! Brokers of Apache Kafka, and programs of Kafka's own classes.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use krabka_remote_storage::RemoteStorageError;
use krabka_remote_storage::topic::{
    KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog,
    TopicBasedRemoteLogMetadataManager, TopicManagerConfig,
};
use parking_lot::{Mutex, MutexGuard};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;
use serde_json::Value;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Handle;
use uuid::Uuid;

/// Longer than anything should take, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Held by the test that has brokers of its own.
static ALONE: Mutex<()> = Mutex::new(());

/// Brokers, shared or a test's own. Its own are stopped when it is dropped.
pub(crate) struct Cluster {
    exports: HashMap<String, String>,
    own: Option<Own>,
}

struct Own {
    name: String,
    port: u16,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// The broker that `tests/run.sh` has started. `None`, which skips the test, when it is not
    /// meant to be there; with the servers a missing variable is a failure.
    pub(crate) fn shared() -> Option<Self> {
        let exports: HashMap<_, _> = env::vars()
            .filter(|(name, _)| name.starts_with("KRABKA_TEST_KAFKA_"))
            .collect();
        let name = "KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS";
        if exports.contains_key(name) {
            return Some(Self { exports, own: None });
        }
        assert!(
            !are_meant_to_be_there(),
            "the servers are meant to be there, but {name} is not set"
        );
        eprintln!("skipped: {name} is not set; `tests/run.sh kafka` starts the broker");
        None
    }

    /// Brokers of this test's own, set up with these options of `kafka.sh start`. `None` skips the
    /// test, as above.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        if !are_meant_to_be_there() && env::var_os("KRABKA_TEST_KAFKA_BOOTSTRAP_SERVERS").is_none()
        {
            eprintln!("skipped: `tests/run.sh kafka` runs the tests that start brokers");
            return None;
        }
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mut cluster = Self {
            exports: HashMap::new(),
            own: Some(Own {
                name: format!("kafka-test-{}-{number}", std::process::id()),
                port: free_ports(),
                _alone: ALONE.lock(),
            }),
        };
        let said = cluster.script(&[&["start"], options].concat());
        for line in said.lines() {
            if let Some((name, value)) = line
                .strip_prefix("export ")
                .and_then(|line| line.split_once('='))
            {
                cluster.exports.insert(name.to_owned(), value.to_owned());
            }
        }
        Some(cluster)
    }

    fn variable(&self, name: &str) -> &str {
        let name = format!("KRABKA_TEST_KAFKA_{name}");
        self.exports
            .get(&name)
            .unwrap_or_else(|| panic!("{name} is not set: was the broker started with it?"))
    }

    pub(crate) fn bootstrap(&self) -> &str {
        self.variable("BOOTSTRAP_SERVERS")
    }

    pub(crate) fn secure(&self, name: &str) -> &str {
        self.variable(&format!("SECURE_{name}"))
    }

    /// The folder of the brokers' data.
    pub(crate) fn dir(&self) -> PathBuf {
        self.variable("DIR").into()
    }

    /// The folder of `LocalTieredStorage`.
    pub(crate) fn tier(&self) -> PathBuf {
        self.dir().join("remote/kafka-tiered-storage")
    }

    /// Runs `kafka.sh`, and answers with what it said.
    pub(crate) fn script(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("bash");
        command
            .arg(repository().join("tests/servers/kafka.sh"))
            .args(arguments);
        if let Some(own) = &self.own {
            command
                .env("KRABKA_TEST_KAFKA_NAME", &own.name)
                .env("KRABKA_TEST_KAFKA_PORT", own.port.to_string());
        }
        output(command)
    }

    /// Runs one of Kafka's own tools against these brokers.
    pub(crate) fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let to = ["--bootstrap-server", self.bootstrap()];
        self.script(&[&["tool", class], &to[..], arguments].concat())
    }

    /// Runs a program of `tests/kafka/programs` against these brokers, and answers with the lines
    /// of JSON that it writes.
    pub(crate) fn program(&self, class: &str, arguments: &[&str]) -> Vec<Value> {
        java(class, &[&[self.bootstrap()], arguments].concat())
    }

    /// A topic of a test's own, created by the log.
    pub(crate) fn own_topic(&self, partitions: i32) -> KafkaMetadataLogConfig {
        let mut config = KafkaMetadataLogConfig::new(self.bootstrap());
        config.topic = format!("metadata-{}", Uuid::new_v4());
        config.num_partitions = partitions;
        config.replication = 1;
        config.min_isr = Some(1);
        config
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        let mut settings = ClientConfig::new();
        settings.set("bootstrap.servers", self.bootstrap());
        settings.create().unwrap()
    }

    /// Creates a topic, also while the cluster still deletes one of this name.
    pub(crate) async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replication: TopicReplication<'_>,
        settings: &[(&str, &str)],
    ) {
        let mut topic = NewTopic::new(name, partitions, replication);
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let admin = self.admin();
        within("the creation of a topic", async {
            loop {
                let answer = admin.create_topics([&topic], &options()).await.unwrap();
                match &answer[0] {
                    Ok(_) => return,
                    Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => a_moment().await,
                    Err(error) => panic!("{error:?}"),
                }
            }
        })
        .await;
    }

    pub(crate) async fn delete_topic(&self, name: &str) {
        let admin = self.admin();
        let deleted = admin.delete_topics(&[name], &options()).await.unwrap();
        deleted[0].as_ref().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.script(&["stop"]);
        }
    }
}

fn are_meant_to_be_there() -> bool {
    env::var_os("KRABKA_TEST_SERVERS").is_some()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)))
}

/// The first of the ports that three brokers need, on none of which anybody listens.
fn free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let is_free = |offset| TcpListener::bind(("127.0.0.1", port + offset)).is_ok();
        if port < u16::MAX - 30 && [1, 2, 10, 12, 20, 22].into_iter().all(is_free) {
            return port;
        }
    }
}

/// Runs a command to its end, which is a success, in a thread that may block.
fn output(mut command: Command) -> String {
    command.stdin(Stdio::null());
    let output = match Handle::try_current() {
        Ok(_) => tokio::task::block_in_place(|| command.output()),
        Err(_) => command.output(),
    };
    let output = output.unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program of Kafka's classes, and answers with the lines of JSON that it writes.
pub(crate) fn java(class: &str, arguments: &[&str]) -> Vec<Value> {
    static CLASS_PATH: OnceLock<String> = OnceLock::new();
    let class_path = CLASS_PATH.get_or_init(|| {
        let mut compile = Command::new("bash");
        compile.arg(repository().join("tests/kafka/compile.sh"));
        output(compile).trim().to_owned()
    });
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-cp", class_path])
        .arg(format!("krabka.test.{class}"))
        .args(arguments);
    let lines = output(command);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The lines of JSON of a file.
pub(crate) fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn json_file(path: &Path) -> Value {
    serde_json::from_reader(File::open(path).unwrap()).unwrap()
}

/// Waits, as long as it can be expected to take.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Between two looks at something that another process does.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// A manager over a log, and the folder that it writes to.
pub(crate) struct Managed {
    pub(crate) manager: Arc<TopicBasedRemoteLogMetadataManager>,
    _dir: TempDir,
}

impl Managed {
    pub(crate) fn over(log: &Arc<KafkaMetadataEventLog>) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = TopicManagerConfig::new(dir.path(), Duration::from_hours(1));
        config.write_timeout = Duration::from_mins(1);
        let log: Arc<dyn MetadataEventLog> = Arc::clone(log) as _;
        let manager =
            TopicBasedRemoteLogMetadataManager::start_with(log, &Handle::current(), config);
        Self {
            manager: manager.unwrap(),
            _dir: dir,
        }
    }

    /// One that has read everything.
    pub(crate) async fn ready(log: &Arc<KafkaMetadataEventLog>) -> Self {
        let managed = Self::over(log);
        let all: Vec<_> = (0..log.partition_count()).collect();
        within("the replay", async {
            // A topic that was just created may not answer yet, and is asked again.
            match managed.manager.reconcile_assignment(&all).await {
                Ok(()) | Err(RemoteStorageError::NotReady { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            managed.manager.wait_until_ready().await.unwrap();
        })
        .await;
        managed
    }
}

pub(crate) async fn log(config: &KafkaMetadataLogConfig) -> Arc<KafkaMetadataEventLog> {
    within("the log", KafkaMetadataEventLog::start(config.clone()))
        .await
        .unwrap()
}
