package org.apache.kafka.server.log.remote.metadata.storage;

import java.util.Iterator;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** Kafka's metadata store, with the questions that only its own package may ask opened to the programs. */
public final class OpenMetadataStore extends RemotePartitionMetadataStore {
    public Optional<RemoteLogSegmentMetadata> segment(TopicIdPartition tp, int epoch, long offset) throws RemoteStorageException {
        return remoteLogSegmentMetadata(tp, offset, epoch);
    }

    public Optional<RemoteLogSegmentMetadata> nextWithTxnIndex(TopicIdPartition tp, int epoch, long offset) throws RemoteStorageException {
        return nextSegmentWithTxnIndex(tp, epoch, offset);
    }

    public Optional<Long> highestOffset(TopicIdPartition tp, int epoch) throws RemoteStorageException {
        return highestLogOffset(tp, epoch);
    }

    public Iterator<RemoteLogSegmentMetadata> segments(TopicIdPartition tp) throws RemoteStorageException {
        return listRemoteLogSegments(tp);
    }

    public Iterator<RemoteLogSegmentMetadata> segments(TopicIdPartition tp, int epoch) throws RemoteStorageException {
        return listRemoteLogSegments(tp, epoch);
    }
}
