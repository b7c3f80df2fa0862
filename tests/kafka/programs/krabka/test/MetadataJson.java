package krabka.test;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;

/** Metadata events as JSON, with the names that tests/data/metadata-topic/events.ndjson has. */
final class MetadataJson {
    static final ObjectMapper JSON = new ObjectMapper();

    private MetadataJson() {
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    static TopicIdPartition partition(JsonNode n) {
        return new TopicIdPartition(Uuid.fromString(n.required("topic_id").asText()), n.required("partition").asInt(), n.required("topic").asText());
    }

    static ObjectNode put(ObjectNode n, TopicIdPartition tp) {
        return n.put("topic_id", tp.topicId().toString()).put("topic", tp.topic()).put("partition", tp.partition());
    }

    static ObjectNode event(RemoteLogMetadata event) {
        ObjectNode n = JSON.createObjectNode();
        n.put("type", event.getClass().getSimpleName());
        n.put("broker_id", event.brokerId()).put("event_timestamp_ms", event.eventTimestampMs());
        if (event instanceof RemoteLogSegmentMetadata segment) {
            n.set("id", id(segment.remoteLogSegmentId()));
            n.put("start_offset", segment.startOffset()).put("end_offset", segment.endOffset());
            n.put("max_timestamp_ms", segment.maxTimestampMs()).put("segment_size_in_bytes", segment.segmentSizeInBytes());
            n.put("state", segment.state().name()).put("txn_idx_empty", segment.isTxnIdxEmpty());
            ObjectNode epochs = n.putObject("segment_leader_epochs");
            segment.segmentLeaderEpochs().forEach((epoch, start) -> epochs.put(epoch.toString(), start));
            segment.customMetadata().map(CustomMetadata::value).ifPresent(v -> n.put("custom_metadata", hex(v)));
        } else if (event instanceof RemoteLogSegmentMetadataUpdate update) {
            n.set("id", id(update.remoteLogSegmentId()));
            n.put("state", update.state().name());
            update.customMetadata().map(CustomMetadata::value).ifPresent(v -> n.put("custom_metadata", hex(v)));
        } else if (event instanceof RemotePartitionDeleteMetadata delete) {
            put(n, delete.topicIdPartition()).put("state", delete.state().name());
        } else {
            throw new IllegalArgumentException("an event of " + event.getClass());
        }
        return n;
    }

    static ArrayNode events(Iterator<? extends RemoteLogMetadata> events) {
        ArrayNode all = JSON.createArrayNode();
        events.forEachRemaining(e -> all.add(event(e)));
        return all;
    }

    private static ObjectNode id(RemoteLogSegmentId id) {
        return put(JSON.createObjectNode(), id.topicIdPartition()).put("segment_id", id.id().toString());
    }
}
