package org.apache.kafka.server.log.remote.metadata.storage;

import java.util.Iterator;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** Opens the package-private queries of Kafka's metadata store to MakeTestData. */
public final class MetadataAnswers extends RemotePartitionMetadataStore {
    public Iterator<RemoteLogSegmentMetadata> all(TopicIdPartition tp) throws Exception { return listRemoteLogSegments(tp); }

    public Iterator<RemoteLogSegmentMetadata> ofEpoch(TopicIdPartition tp, int epoch) throws Exception { return listRemoteLogSegments(tp, epoch); }

    public Optional<RemoteLogSegmentMetadata> lookup(TopicIdPartition tp, int epoch, long offset) throws Exception { return remoteLogSegmentMetadata(tp, offset, epoch); }

    public Optional<RemoteLogSegmentMetadata> nextWithTxn(TopicIdPartition tp, int epoch, long offset) throws Exception { return nextSegmentWithTxnIndex(tp, epoch, offset); }

    public Optional<Long> highest(TopicIdPartition tp, int epoch) throws Exception { return highestLogOffset(tp, epoch); }
}
