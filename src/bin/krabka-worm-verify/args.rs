//! The command line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use krabka_remote_storage::archive::{
    GradeRules, ManifestPublicKey, Printable, VerifyDepth, VerifyRequest,
};
use krabka_remote_storage::backends::ObjectStoreConfig;
use krabka_remote_storage::{ChainHead, RemoteStorageError, TrustedManifestKeys};

use crate::failure::Failure;
use crate::pins::Pins;
use crate::store::ArchiveStore;

const AFTER_HELP: &str = "\
Exit codes: that of the first line of this list that applies. Every reason is printed, whatever the
code; reasons go to standard error, the report and the verdict OK to standard output.
  2    the command line is wrong
  1    TAMPER DETECTED: something was changed, put in or taken out
  8    MISSING: objects or manifests are not there, and nothing else is wrong
  4    HEAD MISMATCH: not what --pins or --expect-head say (a pinned position that is not there goes
       before 3, an unexpected tip behind it)
  3    error: something could not be listed or read, also the key or pins file; it says nothing
       about the archive
  6    ORPHAN OBJECTS: objects that no manifest names. What a retried copy has left is a note,
       unless --strict-orphans is given; other objects pass with --allow-orphans
  5    INCOMPLETE ATTESTATION: a chain was begun anew (passes with --allow-epoch-restarts), or
       manifests are not signed by a trusted key
  6    INCOMPLETE MULTIPART UPLOADS, with --strict-orphans; a note without it
  7    EMPTY ARCHIVE: no manifest; a wrong --prefix looks the same (passes with --allow-empty)
  0    OK. Without --deep it says `OK (bodies not read)`
  130  interrupted
A closed pipe changes no exit code. When the report or the pins cannot be written, 0 becomes 3.

What an archive alone cannot show is that its end was cut off: its newest manifests, whole runs,
whole partitions. Keep what --write-pins writes somewhere else, and give it to the next run with
--pins.

JSON (--format json) is one object on standard output:
  verdict        ok, tamper, missing, error, head_mismatch, orphans, attestation or empty
  exit_code      the program's exit code, unless the report or the pins could not be written
  error          why there is no report (then the verdict is `error` and nothing else is there)
  depth          shallow or deep
  protection     retention: the store can refuse deletion; none: it cannot
  findings       every reason and note: verdict, fails (whether it is a reason), text
  breaks         by partition what is wrong: partition_dir, kind, manifest_key, seq, reason
  open_uploads   keys of multipart uploads that nobody has ended
  report         partitions (as the library's PartitionVerifyReport) and global_orphan_objects
Kinds of breaks: oversize, decode, format, encoding, misplaced, sequence, fork, duplicate_position,
head, exhausted, signature, empty, incomplete, duplicate, coordinates, missing, count, size, digest,
tip.

Nothing is written to the store. Credentials come from the environment (AWS_…, GOOGLE_…, AZURE_…),
and need leave to list, to read, and to list multipart uploads. RUST_LOG filters logs on standard
error.";

/// Proves a write-once archive from its objects and public keys alone.
#[derive(Parser)]
#[command(name = "krabka-worm-verify", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Verify(VerifyArgs),
}

/// For whom the report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people.
    Text,
    /// One JSON object.
    Json,
}

/// Verifies an archive: manifests, their chain and signatures, and the objects that they name.
#[derive(Args)]
#[command(after_help = AFTER_HELP, group(ArgGroup::new("where").required(true).args(["url", "local_dir", "bucket"])))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The front part of the keys to look at, in whole path components; below the prefix of the URL.
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub(crate) prefix: Option<String>,

    /// Only partitions of this topic: by their directory's name, or by what a manifest says.
    #[arg(long, value_name = "TOPIC", allow_hyphen_values = true)]
    topic: Option<String>,

    /// Only partitions with this index, likewise.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// The name of a trusted key, for the --public-key in the same place; repeatable.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    key_id: Vec<String>,

    /// A trusted public key: 32 raw bytes, 64 hexadecimal digits, or `SubjectPublicKeyInfo` as DER or
    /// PEM; repeatable.
    #[arg(long, value_name = "FILE")]
    public_key: Vec<PathBuf>,

    /// The head that every partition ends with, or that the partition in one directory ends with;
    /// repeatable.
    #[arg(long, value_name = "HEX64|DIR=HEX64", value_parser = parse_expected_head,
        allow_hyphen_values = true)]
    expect_head: Vec<ExpectedHead>,

    /// Positions that must be in the archive, as --write-pins wrote them.
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,

    /// Writes the positions of an archive that is in order. What --pins says of directories that were
    /// not looked at is kept.
    #[arg(long, value_name = "FILE")]
    pub(crate) write_pins: Option<PathBuf>,

    /// Reads every object and checks its SHA-256. Without it only presence and sizes are checked.
    #[arg(long)]
    deep: bool,

    /// Lets a partition's chain be begun anew.
    #[arg(long)]
    allow_epoch_restarts: bool,

    /// Takes what retried copies have left, and open multipart uploads, for a fault too.
    #[arg(long, conflicts_with = "allow_orphans")]
    strict_orphans: bool,

    /// Lets objects be there that no manifest names.
    #[arg(long)]
    allow_orphans: bool,

    /// Lets the archive have no manifest.
    #[arg(long)]
    allow_empty: bool,

    /// The form of the report.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Which store.
#[derive(Args)]
#[group(skip)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        value_name = "URL",
        help = "Any store: file:///DIR, s3://BUCKET/PREFIX, \
        gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    url: Option<String>,

    /// A local directory.
    #[arg(long, value_name = "DIR")]
    local_dir: Option<PathBuf>,

    /// A bucket of Amazon S3, or of a store that speaks its protocol.
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,

    /// The bucket's region. Default: `AWS_REGION`, then us-east-1.
    #[arg(long, value_name = "REGION", conflicts_with_all = ["url", "local_dir"])]
    region: Option<String>,

    /// The URL of a store that is not AWS. Default: `AWS_ENDPOINT_URL`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["url", "local_dir"])]
    endpoint: Option<String>,

    /// Allows an endpoint without TLS.
    #[arg(long, conflicts_with_all = ["url", "local_dir"])]
    allow_http: bool,
}

impl StoreArgs {
    /// The store's configuration, with what the arguments leave open from the environment.
    pub(crate) fn config(&self) -> Result<ObjectStoreConfig, RemoteStorageError> {
        if let Some(url) = &self.url {
            return ObjectStoreConfig::from_url(url);
        }
        #[cfg(feature = "aws")]
        if let Some(bucket) = &self.bucket {
            return self.bucket_config(bucket);
        }
        #[cfg(not(feature = "aws"))]
        if let Some(bucket) = &self.bucket {
            // Says which feature is missing.
            return ObjectStoreConfig::from_url(&format!("s3://{bucket}"));
        }
        let root = self.local_dir.clone().unwrap_or_default();
        Ok(ObjectStoreConfig::Local { root })
    }

    #[cfg(feature = "aws")]
    fn bucket_config(&self, bucket: &str) -> Result<ObjectStoreConfig, RemoteStorageError> {
        let mut config = krabka_remote_storage::S3Config::from_env(bucket)?;
        if let Some(region) = &self.region {
            config.region.clone_from(region);
        }
        if let Some(endpoint) = &self.endpoint {
            config.endpoint = Some(endpoint.clone());
        }
        config.allow_http |= self.allow_http;
        Ok(ObjectStoreConfig::S3(config))
    }
}

/// A head that a partition, or every partition, must end with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExpectedHead {
    directory: Option<String>,
    head: ChainHead,
}

fn parse_expected_head(text: &str) -> Result<ExpectedHead, String> {
    // A directory may have a `=` in its prefix; a head has none.
    let (directory, head) = match text.rsplit_once('=') {
        Some((directory, head)) => (Some(directory.trim_matches('/').to_owned()), head),
        None => (None, text),
    };
    if directory.as_deref() == Some("") {
        return Err("there is no directory before the `=`".to_owned());
    }
    let head = head
        .parse::<ChainHead>()
        .map_err(|error| error.to_string())?;
    Ok(ExpectedHead { directory, head })
}

impl VerifyArgs {
    /// The keys that are trusted.
    pub(crate) fn trusted_keys(&self) -> Result<TrustedManifestKeys, Failure> {
        let (ids, files) = (self.key_id.len(), self.public_key.len());
        if ids != files {
            return Err(Failure::Usage(format!(
                "each --key-id needs a --public-key in the same place: there are {ids} and {files}"
            )));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.key_id.iter().find(|id| !seen.insert(id.as_str())) {
            return Err(Failure::Usage(format!(
                "--key-id `{}` is given twice",
                Printable(twice)
            )));
        }
        let load = |path: &Path| {
            ManifestPublicKey::load(path)
                .map_err(|error| Failure::during("cannot load a public key", error))
        };
        let pairs = self.key_id.iter().zip(&self.public_key);
        let pairs = pairs
            .map(|(id, path)| Ok((id.as_str(), load(path)?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        Ok(TrustedManifestKeys::from_pairs(pairs))
    }

    /// How the report is graded.
    pub(crate) fn rules(&self) -> Result<GradeRules, Failure> {
        let mut expect_head = None;
        let mut expect_heads = BTreeMap::new();
        for expected in &self.expect_head {
            let before = match &expected.directory {
                None => expect_head.replace(expected.head),
                Some(directory) => expect_heads.insert(directory.clone(), expected.head),
            };
            if before.is_some() {
                return Err(Failure::Usage(
                    "--expect-head is given twice for one directory, or twice without one"
                        .to_owned(),
                ));
            }
        }
        Ok(GradeRules {
            expect_head,
            expect_heads,
            expects_partitions: false,
            allow_epoch_restarts: self.allow_epoch_restarts,
            strict_orphans: self.strict_orphans,
            allow_orphans: self.allow_orphans,
            allow_empty: self.allow_empty,
        })
    }

    /// What is verified.
    pub(crate) fn request(&self, store: &ArchiveStore, pins: Option<Pins>) -> VerifyRequest {
        // `expect_head` is compared by the grader: another tip is no sign of tampering.
        let mut request = VerifyRequest::default();
        request.prefix = Some(store.prefix().to_owned());
        request.topic = self.topic.clone();
        request.partition = self.partition;
        request.depth = if self.deep {
            VerifyDepth::Deep
        } else {
            VerifyDepth::Shallow
        };
        request.expect_positions = pins;
        request.allow_epoch_restarts = self.allow_epoch_restarts;
        request
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_head_is_expected_everywhere_or_in_one_directory() {
        let digits = "aB".repeat(32);
        let head: ChainHead = digits.parse().unwrap();
        let expected = |directory: Option<&str>| {
            Ok(ExpectedHead {
                directory: directory.map(str::to_owned),
                head,
            })
        };
        assert_eq!(parse_expected_head(&digits), expected(None));
        let named = format!("/a=b/orders-0-id/={digits}");
        assert_eq!(
            parse_expected_head(&named),
            expected(Some("a=b/orders-0-id"))
        );
        for wrong in [
            "",
            "dir=",
            "ab",
            &format!("={digits}"),
            &format!("{digits}0"),
        ] {
            assert!(parse_expected_head(wrong).is_err(), "{wrong}");
        }
    }
}
