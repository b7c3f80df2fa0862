//! The published values of the format, and the manifests they belong to.
//!
//! They were computed by an implementation of its own, so they hold the format, not the code.

use ed25519_dalek::{Signer as _, SigningKey};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::model::{
    LeaderEpoch, RemoteLogSegmentDetails, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentState, TopicIdPartition,
};

pub(super) const KEY_ID: &str = "worm-key-1";
pub(super) const PUBLIC_KEY: &str =
    "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
pub(super) const V2_HEAD: &str = "c1bf98a156dd6c01b79be21cc7af6521b7a6bc86bc32a269519247a7b7eb3b62";
pub(super) const V2_SIGNATURE: &str = "a4fafd1caef8a843d28fbe5ea3006a34f99c8c8687cfa81462e86bd21d63713b95f2859a47ff7dcbedc5d457d99b314e71510a97f71950dbed86310bb9ef7004";

pub(super) fn seed() -> [u8; 32] {
    std::array::from_fn(|i| u8::try_from(i).unwrap())
}

pub(super) fn public_key() -> ManifestPublicKey {
    ManifestPublicKey::from_bytes(&PUBLIC_KEY.parse::<HexBytes>().unwrap().0).unwrap()
}

pub(super) fn trusted() -> TrustedManifestKeys {
    TrustedManifestKeys::single(KEY_ID, public_key())
}

/// Signs as the format says, with nothing of the code that seals.
pub(super) fn signed(body: ManifestBody, key_id: &str) -> SegmentManifest {
    let key = SigningKey::from_bytes(&seed());
    let chain = body.chain;
    let message = manifest_signing_bytes(key_id, chain.epoch_id, chain.seq, manifest_head(&body));
    SegmentManifest {
        signature: Some(ManifestSignature {
            key_id: key_id.to_owned(),
            public_key: HexBytes(key.verifying_key().to_bytes().to_vec()),
            signature: HexBytes(key.sign(&message).to_bytes().to_vec()),
        }),
        body,
    }
}

pub(super) fn v1() -> ManifestBody {
    ManifestBody {
        format_version: 2,
        segment: SegmentIdentity {
            topic: String::new(),
            topic_id: Uuid::nil(),
            partition: 0,
            segment_id: Uuid::nil(),
            start_offset: 0,
            end_offset: 0,
            max_timestamp_ms: 0,
            broker_id: 0,
            event_timestamp_ms: 0,
            segment_size_bytes: 0,
            leader_epochs: [].into(),
            txn_index_empty: false,
        },
        objects: Vec::new(),
        chain: ChainStamp::genesis(EpochId(Uuid::nil())),
    }
}

fn orders(stem: &str, sizes: [u64; 2]) -> Vec<ObjectEntry> {
    vec![
        ObjectEntry {
            suffix: ".log".to_owned(),
            key: format!("{stem}.log"),
            size_bytes: sizes[0],
            sha256: Sha256Digest::of(b"log body"),
            e_tag: Some("\"d41d8cd98f00b204e9800998ecf8427e-3\"".to_owned()),
            version_id: Some("3HL4kqtJlcpXroDTDmjVBH40Nrjfkd".to_owned()),
            create_precondition: false,
        },
        ObjectEntry {
            suffix: ".index".to_owned(),
            key: format!("{stem}.index"),
            size_bytes: sizes[1],
            sha256: Sha256Digest::of(b"index body"),
            e_tag: None,
            version_id: None,
            create_precondition: true,
        },
    ]
}

pub(super) fn v2() -> ManifestBody {
    ManifestBody {
        format_version: 2,
        segment: SegmentIdentity {
            topic: "orders".to_owned(),
            topic_id: Uuid::from_u128(0x11),
            partition: 3,
            segment_id: Uuid::from_u128(0x22),
            start_offset: 100,
            end_offset: 199,
            max_timestamp_ms: 1_713_000_000_000,
            broker_id: 7,
            event_timestamp_ms: 1_713_000_001_000,
            segment_size_bytes: 8,
            leader_epochs: [(0, 100), (1, 150)].into(),
            txn_index_empty: true,
        },
        objects: orders(
            "archive/orders-3-AAAAAAAAAAAAAAAAAAAAEQ/00000000000000000100-AAAAAAAAAAAAAAAAAAAAIg",
            [8, 10],
        ),
        chain: ChainStamp::genesis(EpochId(Uuid::from_u128(0x99))),
    }
}

/// The metadata that V2 was sealed from.
pub(super) fn v2_metadata() -> RemoteLogSegmentMetadata {
    let tp = TopicIdPartition::new(Uuid::from_u128(0x11), "orders", 3);
    let details = RemoteLogSegmentDetails::new(
        8,
        RemoteLogSegmentState::CopySegmentStarted,
        [(LeaderEpoch(0), 100), (LeaderEpoch(1), 150)].into(),
    );
    let id = RemoteLogSegmentId::new(tp, Uuid::from_u128(0x22));
    RemoteLogSegmentMetadata::new(
        id,
        100,
        199,
        1_713_000_000_000,
        7,
        1_713_000_001_000,
        details,
    )
    .unwrap()
    .with_txn_index_empty(true)
    .with_custom_metadata(WormChainRecord::request(v2().chain).to_custom_metadata())
}

fn v3() -> ManifestBody {
    let mut body = v2();
    body.segment.segment_id = Uuid::from_u128(0x23);
    body.segment.start_offset = 200;
    body.segment.end_offset = 299;
    body.segment.leader_epochs = [(0, 200), (1, 250)].into();
    body.objects = orders(
        "archive/orders-3-AAAAAAAAAAAAAAAAAAAAEQ/00000000000000000200-AAAAAAAAAAAAAAAAAAAAIw",
        [8, 10],
    );
    body.chain.seq = ManifestSeq(1);
    body.chain.prev_head = manifest_head(&v2());
    body
}

fn v4() -> ManifestBody {
    ManifestBody {
        format_version: 2,
        segment: SegmentIdentity {
            topic: "t".to_owned(),
            topic_id: Uuid::max(),
            partition: i32::MAX,
            segment_id: "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap(),
            start_offset: i64::MAX - 1,
            end_offset: i64::MAX,
            max_timestamp_ms: -1,
            broker_id: -1,
            event_timestamp_ms: -1,
            segment_size_bytes: i64::from(i32::MAX),
            leader_epochs: [(-1, -1), (2, 5), (10, 6)].into(),
            txn_index_empty: false,
        },
        objects: vec![ObjectEntry {
            suffix: ".log".to_owned(),
            key: "k".to_owned(),
            size_bytes: 0,
            sha256: Sha256Digest::of(b""),
            e_tag: Some(String::new()),
            version_id: Some(String::new()),
            create_precondition: true,
        }],
        chain: ChainStamp {
            epoch_id: EpochId("0f0e0d0c-0b0a-0908-0706-050403020100".parse().unwrap()),
            seq: ManifestSeq(u64::MAX),
            prev_head: ChainHead([0xff; 32]),
        },
    }
}

fn v5() -> ManifestBody {
    let mut body = v2();
    body.segment.segment_size_bytes = 4096;
    body.segment.txn_index_empty = false;
    body.objects = orders("archive/orders-3/00000000000000000100", [4096, 64]);
    body.objects[1].create_precondition = false;
    body.chain.seq = ManifestSeq(4);
    body.chain.prev_head = ChainHead([7; 32]);
    body
}

const V6_KEY_ID: &str = "clé-\u{2011}\"\\\n";

fn v6() -> ManifestBody {
    let mut body = v2();
    body.segment.topic =
        "a\"b\\c/ü\u{4e16}\u{1f600}\u{1}\u{8}\t\n\u{c}\r\u{1f}\u{7f}\u{2028}".to_owned();
    body.segment.leader_epochs.clear();
    body.objects.clear();
    body
}

fn hex(bytes: &[u8]) -> String {
    HexBytes(bytes.to_vec()).to_string()
}

/// Canonical length and digest, head, signature, JSON length and digest; an empty text is a value
/// that was not published.
fn assert_vector(
    body: &ManifestBody,
    key_id: &str,
    (len, canonical, head, signature): (usize, &str, &str, &str),
    (json_len, json_sha): (usize, &str),
) {
    let bytes = canonical_manifest_bytes(body);
    assert_eq!(bytes.len(), len);
    assert_eq!(bytes.capacity(), len, "the length is known beforehand");
    if !canonical.is_empty() {
        assert_eq!(Sha256Digest::of(&bytes).to_string(), canonical);
    }
    assert_eq!(manifest_head(body).to_string(), head);
    let manifest = signed(body.clone(), key_id);
    if !signature.is_empty() {
        let actual = manifest.signature.as_ref().unwrap().signature.to_string();
        assert_eq!(actual, signature);
    }
    assert!(verify_manifest_signature(
        &manifest,
        public_key().as_bytes()
    ));
    let json = manifest.encode().unwrap();
    assert_eq!(
        (json.len(), Sha256Digest::of(&json).to_string().as_str()),
        (json_len, json_sha)
    );
    assert_eq!(SegmentManifest::decode(&json), Ok(manifest));
}

#[test]
fn v1_all_zero() {
    let canonical = canonical_manifest_bytes(&v1());
    assert_eq!(
        hex(&canonical),
        format!(
            "6b7261626b612d776f726d2d6d616e69666573742d626f64792d763100{}{}",
            "00000002",
            "00".repeat(161)
        )
    );
    assert_vector(
        &v1(),
        KEY_ID,
        (
            194,
            "ebc9861a0565eb7c91a99143f9982bef25dd2df0d1bfea93903683bfb427d5b3",
            "b934d7d1ded1712f1178f54936d55d28c1c9874c9b2b86ffe9419a3066ef007a",
            "58940ae51fdc567c20f0e2ca6e08587034accd52b29100d242e41f84948e28e1635db0b0870e0ca736aec18dcd49dfe7c1c339b7e505d46c8bc073f57d96bc00",
        ),
        (
            743,
            "e675e90955619783f4ee09c99c9021d6411291f4ce581475c1a23f80e71928c9",
        ),
    );
}

#[test]
fn v2_a_segment_with_two_objects() {
    assert_eq!(
        hex(&canonical_manifest_bytes(&v2())),
        "6b7261626b612d776f726d2d6d616e69666573742d626f64792d7631000000000200000000000000066f7264657273000000000000000000000000000000110000000300000000000000000000000000000022000000000000006400000000000000c70000018ed6c1aa00000000070000018ed6c1ade80000000000000008000000000000000200000000000000000000006400000001000000000000009601000000000000000200000000000000042e6c6f670000000000000057617263686976652f6f72646572732d332d414141414141414141414141414141414141414145512f30303030303030303030303030303030303130302d414141414141414141414141414141414141414149672e6c6f670000000000000008aa7e5f3c7b6f4fc5001e304da285bc207f62faab04dfd028d1661d2c48f8533e0100000000000000242264343164386364393866303062323034653938303039393865636638343237652d332201000000000000001e33484c346b71744a6c637058726f4454446d6a56424834304e726a666b640000000000000000062e696e6465780000000000000059617263686976652f6f72646572732d332d414141414141414141414141414141414141414145512f30303030303030303030303030303030303130302d414141414141414141414141414141414141414149672e696e646578000000000000000a2bc97d5db5a47712331a761f7488d16ff65819db208e64a2bc067b5de6e28be40000010000000000000000000000000000009900000000000000000000000000000000000000000000000000000000000000000000000000000000"
    );
    let chain = v2().chain;
    let message =
        manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, V2_HEAD.parse().unwrap());
    assert_eq!(
        hex(&message),
        format!(
            "6b7261626b612d776f726d2d6d616e69666573742d763100000000000000000a776f726d2d6b65792d31000000000000000000000000000000990000000000000000{V2_HEAD}"
        )
    );
    assert_vector(
        &v2(),
        KEY_ID,
        (
            610,
            "57f067c160c8c1db9308ec34c4268dea752bebb733076287d1e537c40dff784c",
            V2_HEAD,
            V2_SIGNATURE,
        ),
        (
            1386,
            "3aaecd65579c98a531a90f77e1b86febb9aad7937705c862108825ebca967d50",
        ),
    );
}

#[test]
fn v2_unsigned() {
    let manifest = SegmentManifest {
        body: v2(),
        signature: None,
    };
    let json = manifest.encode().unwrap();
    assert!(json.ends_with(br#","signature":null}"#));
    assert_eq!(json.len(), 1144);
    assert_eq!(
        Sha256Digest::of(&json).to_string(),
        "9c095f3aa9e02876559a6af81d23fd110654d7465e4d0685fc63cdb96219a9df"
    );
}

#[test]
fn v3_the_successor_of_v2() {
    assert_vector(
        &v3(),
        KEY_ID,
        (
            610,
            "332ee6b8f72835f297a05d25a190a2f102255803e51088aa7c9959064b70710c",
            "d223584b5e739ab2bc3b385c8e7837ac34d1ec6720396392981e0664909e3ef7",
            "b001123ddbb2147332a71e5b2eb98b875017a8c0e643b82af2a90678cc065f9e3f7f7d9c500f34b8750563e8b0a5db8c598a62c3bebc2880b2ae7bd612a5dd0b",
        ),
        (
            1386,
            "429df2f0d15ca676e6488b2f2b20b786121eb6728021df5f04afff563ebbdde5",
        ),
    );
}

#[test]
fn v4_extremes() {
    assert_eq!(
        hex(&canonical_manifest_bytes(&v4())),
        "6b7261626b612d776f726d2d6d616e69666573742d626f64792d76310000000002000000000000000174ffffffffffffffffffffffffffffffff7fffffff00112233445566778899aabbccddeeff7ffffffffffffffe7fffffffffffffffffffffffffffffffffffffffffffffffffffffff000000007fffffff0000000000000003ffffffffffffffffffffffff0000000200000000000000050000000a000000000000000600000000000000000100000000000000042e6c6f6700000000000000016b0000000000000000e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855010000000000000000010000000000000000010f0e0d0c0b0a09080706050403020100ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    );
    let json = String::from_utf8(signed(v4(), KEY_ID).encode().unwrap()).unwrap();
    assert!(json.contains(r#""leader_epochs":{"-1":-1,"2":5,"10":6}"#));
    assert_vector(
        &v4(),
        KEY_ID,
        (
            311,
            "",
            "84c23be44cfe3b943ff6b5e57bc1042fcf73fb55180b094ce809676a060a20cc",
            "36d27e9b8ca8edddc691ccd44b56b6ebec3eca1c4ed562e8245f65082f3d0a378951c5c4e0d4e084f1d8fc498927c63b22c8ff3086ac64d3ee9aff995c959d01",
        ),
        (
            1012,
            "5ab752613c03a4a163fb4746a2d69d838abc9eb590c6db1bd57cbf0993045a08",
        ),
    );
}

#[test]
fn v5_the_format_is_part_of_what_is_hashed() {
    assert_vector(
        &v5(),
        KEY_ID,
        (
            518,
            "",
            "9963f8f3c7fc483a0ed9c1fc83c9964c8ce10eb604e6f9831980101b5b636495",
            "d0488ee823313e3cc66f581cb2fb85af0830748cce60d57c5ad8842aaf86d3de1717b7d3758bffd3835ed71e7f44a524124ca2c06acd2a53286db5f935b99e0b",
        ),
        (
            1302,
            "29e0cf991d7c35a6cf648d7fbe88f77d9ac3bec292f23e2eca5dbb7b5f4f7762",
        ),
    );
    let mut older = v5();
    older.format_version = 1;
    assert_eq!(canonical_manifest_bytes(&older).len(), 516);
    assert_eq!(
        manifest_head(&older).to_string(),
        "ddeddb2bf98326042f01abe26eb59f1a009892a17def88ecbbc31ee3c736e9c7"
    );
    // The signature check looks at no version; the decoder refuses it.
    let older = signed(older, KEY_ID);
    assert!(verify_manifest_signature(&older, public_key().as_bytes()));
    assert_eq!(
        SegmentManifest::decode(&older.encode().unwrap()),
        Err(ManifestDecodeError::Format {
            found: "1".to_owned(),
            seq: Some(ManifestSeq(4))
        })
    );
}

#[test]
fn v6_escapes() {
    assert_eq!(v6().segment.topic.len(), 26);
    assert_eq!(V6_KEY_ID.len(), 11);
    assert_vector(
        &v6(),
        V6_KEY_ID,
        (
            220,
            "ce3020870805c3b33af8d157b91d835dd40c3a8a7524723b18c95288f7866a09",
            "77cb6a183328390a852d8b21e36ee99966c0702139fa96cc7a02147ffad86e4e",
            "",
        ),
        (
            817,
            "3771a36445f90a93acbe2ada4aac14baa2af4d531ef7cf1329f5f732beb12243",
        ),
    );
}

#[test]
fn a_signature_has_one_form() {
    let mut manifest = signed(v2(), KEY_ID);
    let with_order_added = "a4fafd1caef8a843d28fbe5ea3006a34f99c8c8687cfa81462e86bd21d63713b82c67bf761629023c462ccfab795106371510a97f71950dbed86310bb9ef7014";
    manifest.signature.as_mut().unwrap().signature = with_order_added.parse().unwrap();
    assert!(!verify_manifest_signature(
        &manifest,
        public_key().as_bytes()
    ));
}

#[test]
fn a_signature_by_the_key_for_another_purpose_does_not_cross_over() {
    // The checkpoint of an audit log: another domain, and two bytes for the key id's length.
    let head = manifest_head(&v2());
    let mut checkpoint = b"krabka-audit-ckpt-v1\0".to_vec();
    checkpoint.extend_from_slice(&10_u16.to_be_bytes());
    checkpoint.extend_from_slice(KEY_ID.as_bytes());
    checkpoint.extend_from_slice(&0_u64.to_be_bytes());
    checkpoint.extend_from_slice(&head.0);
    checkpoint.extend_from_slice(&1_713_000_001_000_i64.to_be_bytes());
    let key = SigningKey::from_bytes(&seed());
    let mut manifest = signed(v2(), KEY_ID);
    manifest.signature.as_mut().unwrap().signature =
        HexBytes(key.sign(&checkpoint).to_bytes().to_vec());
    assert!(!verify_manifest_signature(
        &manifest,
        public_key().as_bytes()
    ));
    let chain = v2().chain;
    let message = manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, head);
    let over_manifest = key.sign(&message).to_bytes();
    assert!(!public_key().verifies(&checkpoint, &over_manifest));
}

#[test]
fn a_manifest_of_another_domain_does_not_verify() {
    let key = SigningKey::from_bytes(&seed());
    let mut manifest = signed(v2(), KEY_ID);
    let chain = v2().chain;
    let mut message =
        manifest_signing_bytes(KEY_ID, chain.epoch_id, chain.seq, manifest_head(&v2()));
    message[0] = b'c';
    manifest.signature.as_mut().unwrap().signature =
        HexBytes(key.sign(&message).to_bytes().to_vec());
    assert!(!verify_manifest_signature(
        &manifest,
        public_key().as_bytes()
    ));
}

#[test]
fn verifying_needs_a_signature_and_a_key_and_never_panics() {
    let manifest = signed(v2(), KEY_ID);
    let key = public_key();
    let key = key.as_bytes();
    let mut small_order = [0; 32];
    small_order[0] = 1;
    for wrong in [&key[..31], &[], &[0; 33], &small_order, &[0xff; 32]] {
        assert!(!verify_manifest_signature(&manifest, wrong));
    }
    let unsigned = SegmentManifest {
        signature: None,
        ..manifest.clone()
    };
    assert!(!verify_manifest_signature(&unsigned, key));
    for length in [0, 63, 65] {
        let mut damaged = manifest.clone();
        damaged.signature.as_mut().unwrap().signature = HexBytes(vec![0; length]);
        assert!(!verify_manifest_signature(&damaged, key));
    }
}

fn any_body() -> impl Strategy<Value = ManifestBody> {
    let entry = (
        any::<(String, String, u64, [u8; 32])>(),
        any::<(Option<String>, Option<String>, bool)>(),
    )
        .prop_map(|((suffix, key, size_bytes, sha256), rest)| ObjectEntry {
            suffix,
            key,
            size_bytes,
            sha256: Sha256Digest(sha256),
            e_tag: rest.0,
            version_id: rest.1,
            create_precondition: rest.2,
        });
    (
        any::<(String, u128, i32, u128)>(),
        any::<[i64; 5]>(),
        any::<(i32, std::collections::BTreeMap<i32, i64>, bool)>(),
        proptest::collection::vec(entry, 0..4),
        any::<(u128, u64, [u8; 32])>(),
    )
        .prop_map(|(ids, numbers, rest, objects, chain)| ManifestBody {
            format_version: 2,
            segment: SegmentIdentity {
                topic: ids.0,
                topic_id: Uuid::from_u128(ids.1),
                partition: ids.2,
                segment_id: Uuid::from_u128(ids.3),
                start_offset: numbers[0],
                end_offset: numbers[1],
                max_timestamp_ms: numbers[2],
                broker_id: rest.0,
                event_timestamp_ms: numbers[3],
                segment_size_bytes: numbers[4],
                leader_epochs: rest.1,
                txn_index_empty: rest.2,
            },
            objects,
            chain: ChainStamp {
                epoch_id: EpochId(Uuid::from_u128(chain.0)),
                seq: ManifestSeq(chain.1),
                prev_head: ChainHead(chain.2),
            },
        })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(body in any_body(), key_id in any::<String>()) {
        let manifest = SegmentManifest {
            signature: Some(ManifestSignature {
                key_id,
                public_key: HexBytes(vec![1; 32]),
                signature: HexBytes(Vec::new()),
            }),
            body,
        };
        let bytes = manifest.encode().unwrap();
        prop_assert_eq!(SegmentManifest::decode(&bytes).unwrap(), manifest);
    }

    #[test]
    fn contents_that_differ_have_heads_that_differ(a in any_body(), b in any_body()) {
        prop_assert_eq!(manifest_head(&a) == manifest_head(&b), a == b);
        prop_assert_eq!(canonical_manifest_bytes(&a).len(), canonical_manifest_bytes(&a).capacity());
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in any::<Vec<u8>>()) {
        prop_assert!(SegmentManifest::decode(&bytes).is_err());
    }

    #[test]
    fn a_changed_byte_never_passes_for_the_same_manifest(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let manifest = signed(v2(), KEY_ID);
        let mut bytes = manifest.encode().unwrap();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        prop_assert!(SegmentManifest::decode(&bytes).ok().is_none_or(|other| other != manifest));
    }
}
