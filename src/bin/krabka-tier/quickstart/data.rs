//! Two partition directories as Apache Kafka 4.3.1 wrote them, every file of them.
//!
//! They are `orders-0` and `payments-0` of the project's test data, whose README says how they came
//! to be.

/// A partition's directory.
pub(super) struct Embedded {
    pub(super) name: &'static str,
    /// Names and bytes.
    pub(super) files: &'static [(&'static str, &'static [u8])],
}

impl Embedded {
    pub(super) fn file(&self, name: &str) -> Option<&'static [u8]> {
        let (_, bytes) = self.files.iter().find(|(file, _)| *file == name)?;
        Some(bytes)
    }
}

macro_rules! embedded {
    ($partition:literal: $($file:literal)*) => {
        Embedded {
            name: $partition,
            files: &[$(($file, include_bytes!(concat!("data/", $partition, "/", $file)))),*],
        }
    };
}

pub(super) const PARTITIONS: [Embedded; 2] = [
    embedded!("orders-0":
        "00000000000000000000.index"
        "00000000000000000000.log"
        "00000000000000000000.timeindex"
        "00000000000000000270.index"
        "00000000000000000270.log"
        "00000000000000000270.snapshot"
        "00000000000000000270.timeindex"
        "00000000000000000564.index"
        "00000000000000000564.log"
        "00000000000000000564.snapshot"
        "00000000000000000564.timeindex"
        "00000000000000000900.index"
        "00000000000000000900.log"
        "00000000000000000900.snapshot"
        "00000000000000000900.timeindex"
        "00000000000000001152.index"
        "00000000000000001152.log"
        "00000000000000001152.snapshot"
        "00000000000000001152.timeindex"
        "00000000000000001422.index"
        "00000000000000001422.log"
        "00000000000000001422.snapshot"
        "00000000000000001422.timeindex"
        "00000000000000001735.index"
        "00000000000000001735.log"
        "00000000000000001735.snapshot"
        "00000000000000001735.timeindex"
        "00000000000000001800.snapshot"
        "leader-epoch-checkpoint"
        "partition.metadata"
    ),
    embedded!("payments-0":
        "00000000000000000000.index"
        "00000000000000000000.log"
        "00000000000000000000.timeindex"
        "00000000000000000010.index"
        "00000000000000000010.log"
        "00000000000000000010.snapshot"
        "00000000000000000010.timeindex"
        "00000000000000000010.txnindex"
        "00000000000000000114.index"
        "00000000000000000114.log"
        "00000000000000000114.snapshot"
        "00000000000000000114.timeindex"
        "00000000000000000128.index"
        "00000000000000000128.log"
        "00000000000000000128.snapshot"
        "00000000000000000128.timeindex"
        "00000000000000000128.txnindex"
        "00000000000000000232.index"
        "00000000000000000232.log"
        "00000000000000000232.snapshot"
        "00000000000000000232.timeindex"
        "00000000000000000242.index"
        "00000000000000000242.log"
        "00000000000000000242.snapshot"
        "00000000000000000242.timeindex"
        "00000000000000000242.txnindex"
        "00000000000000000349.index"
        "00000000000000000349.log"
        "00000000000000000349.snapshot"
        "00000000000000000349.timeindex"
        "00000000000000000349.txnindex"
        "00000000000000000459.index"
        "00000000000000000459.log"
        "00000000000000000459.snapshot"
        "00000000000000000459.timeindex"
        "00000000000000000469.index"
        "00000000000000000469.log"
        "00000000000000000469.snapshot"
        "00000000000000000469.timeindex"
        "00000000000000000469.txnindex"
        "00000000000000000524.snapshot"
        "leader-epoch-checkpoint"
        "partition.metadata"
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_embedded_is_the_test_data_whole() {
        for partition in PARTITIONS {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/partitions");
            let dir = dir.join(partition.name);
            let mut names: Vec<_> = fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            assert_eq!(
                names,
                partition
                    .files
                    .iter()
                    .map(|(name, _)| *name)
                    .collect::<Vec<_>>()
            );
            for name in names {
                let bytes = fs::read(dir.join(&name)).unwrap();
                assert!(partition.file(&name) == Some(&bytes[..]), "{name}");
            }
        }
    }
}
