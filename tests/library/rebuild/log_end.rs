//! Where a log ends, whatever its index says and however long it is.

use super::*;

#[tokio::test]
async fn a_log_end_is_that_of_the_log_and_not_where_the_next_segment_begins() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 0)], &[(0, 4, 100), (5, 7, 100)])
        .await;
    let last = of_epoch(0, magic_2((5, 7, 100)));
    let log = [magic_2((0, 4, 100)), last].concat();
    tier.put(1, 0, LOG_FILE_SUFFIX, log).await;
    tier.segment(2, &[(0, 0)], &[(10, 19, 100)]).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 9), (10, 19)]);
    let listed = list_segments(&tier.tp, &tier.listing().await);
    // Where a batch begins, within one, and beyond the log.
    for (position, requests) in [(0, 1), (100, 1), (150, 2), (1 << 30, 1)] {
        let before = tier.store.requests().len();
        let end = rebuilder(&tier.store).log_end(&listed[0], position).await;
        let end = end.unwrap().unwrap();
        assert_eq!(
            (end.last_offset, end.leader_epoch),
            (7, Some(LeaderEpoch(0)))
        );
        assert_eq!(tier.store.requests().len() - before, requests, "{position}");
    }
    let end = rebuilder(&tier.store).log_end(&listed[1], 0).await;
    let end = end.unwrap().unwrap();
    assert_eq!(
        (end.last_offset, end.leader_epoch),
        (19, None),
        "an epoch below 0 is none"
    );
    tier.put(1, 0, LOG_FILE_SUFFIX, Bytes::new()).await;
    let listed = list_segments(&tier.tp, &tier.listing().await);
    let end = rebuilder(&tier.store).log_end(&listed[0], 0).await;
    assert_eq!(end.unwrap(), None);
}

#[tokio::test]
async fn the_end_of_a_log_is_found_whatever_its_index_says() {
    let batches = [(0, 4, 200), (5, 9, 300), (10, 30, 61)];
    for (index, requests) in [
        (Some(vec![]), 3),                  // one walk over all of it
        (Some(vec![(4, 0), (9, 200)]), 3),  // as Kafka writes it
        (Some(vec![(30, 500), (0, 0)]), 3), // zeros of a preallocated file
        (Some(vec![(9, 201)]), 4),          // not where a batch begins
        (Some(vec![(9, 100_000)]), 3),      // beyond the log
        (None, 3),                          // none at all
    ] {
        let tier = Tier::new();
        tier.segment(1, &[(0, 0)], &batches).await;
        let suffix = IndexType::Offset.suffix();
        if let Some(entries) = &index {
            tier.put(1, 0, suffix, offset_index(entries)).await;
        } else {
            let key = segment_key(&KeyPrefix::default(), &metadata(1, 0, 0), suffix).unwrap();
            tier.store.inner.delete(&key).await.unwrap();
        }
        let rebuilt = tier.rebuild().await;
        assert_eq!(ends(&rebuilt), [(0, 30)], "{index:?}");
        assert_eq!(tier.store.requests().len(), requests, "{index:?}");
    }
}

#[tokio::test]
async fn an_empty_log_and_one_of_old_message_sets_have_an_end_too() {
    let tier = Tier::new();
    tier.segment(1, &[(0, 7)], &[(7, 8, 100)]).await;
    tier.put(1, 7, LOG_FILE_SUFFIX, Bytes::new()).await;
    assert_eq!(ends(&tier.rebuild().await), [(7, 7)]);

    // Magic 1: the offset field is that of the last message.
    let mut old = vec![0; 50];
    old[..8].copy_from_slice(&12_i64.to_be_bytes());
    old[8..12].copy_from_slice(&38_i32.to_be_bytes());
    old[16] = 1;
    tier.put(1, 7, LOG_FILE_SUFFIX, old).await;
    assert_eq!(ends(&tier.rebuild().await), [(7, 12)]);
}

#[tokio::test]
async fn batches_larger_than_what_is_fetched_at_once_are_stepped_over() {
    const MIB: usize = 1 << 20;
    let tier = Tier::new();
    let batches = [
        (0, 4, 20 * MIB),
        (5, 9, 15 * MIB),
        (10, 30, 40 * MIB),
        (31, 33, 70),
    ];
    tier.segment(1, &[(0, 0)], &batches).await;
    let rebuilt = tier.rebuild().await;
    assert_eq!(ends(&rebuilt), [(0, 33)]);
    let logs = tier.store.requests();
    let logs: Vec<_> = logs
        .iter()
        .filter(|request| request.key.ends_with(LOG_FILE_SUFFIX))
        .collect();
    let bytes: u64 = logs.iter().map(|request| request.bytes).sum();
    assert!(
        logs.iter().all(|request| request.bytes <= 16 << 20),
        "{logs:?}"
    );
    assert!(
        bytes <= 3 * (16 << 20) + 70,
        "most of it is never fetched: {bytes}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Logs as brokers write them, with indexes as sparse as they like.
    #[test]
    fn the_end_of_any_log_costs_two_fetches(
        batches in prop::collection::vec((1..50_i64, 61..5_000_usize, any::<bool>()), 1..30),
        start in 0..1_000_000_i64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let tier = Tier::new();
            let mut next = start;
            let mut position = 0;
            let mut entries = Vec::new();
            let mut written = Vec::new();
            for (offsets, size, indexed) in batches {
                let last = next + offsets - 1;
                if indexed {
                    entries.push((u32::try_from(last - start).unwrap(), position));
                }
                written.push((next, last, size));
                position += u32::try_from(size).unwrap();
                next = last + 1;
            }
            tier.segment(1, &[(0, 0)], &written).await;
            tier.put(1, start, IndexType::Offset.suffix(), offset_index(&entries)).await;
            let rebuilt = tier.rebuild().await;
            assert_eq!(ends(&rebuilt), [(start, next - 1)]);
            assert_eq!(tier.store.requests().len(), 3);
        });
    }
}
