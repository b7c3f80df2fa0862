package krabka.test;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reading a partition from one offset to another, and its records as JSON, with the names of tests/data/expected. */
final class Consumers {
    private static final long PATIENCE_NANOS = Duration.ofSeconds(30).toNanos();

    private Consumers() {
    }

    /** A consumer that fails, instead of going to another offset, where the one asked for is not there. */
    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String isolation) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.put("allow.auto.create.topics", "false");
        config.put("isolation.level", isolation);
        config.put("default.api.timeout.ms", 20_000);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Gives every record from `from` (inclusive) up to `to` (exclusive) to `each`. 30 s without any progress are an error. */
    static void read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition tp, long from, long to, Consumer<ConsumerRecord<byte[], byte[]>> each) {
        consumer.assign(List.of(tp));
        consumer.seek(tp, from);
        long position = from;
        long since = System.nanoTime();
        while (position < to) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(tp)) {
                if (record.offset() < to) each.accept(record);
            }
            long now = consumer.position(tp);
            if (now != position) {
                position = now;
                since = System.nanoTime();
            } else if (System.nanoTime() - since > PATIENCE_NANOS) {
                throw new IllegalStateException("no progress at offset " + position + " of " + tp + ", which should go up to " + to);
            }
        }
    }

    static ObjectNode json(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode n = MetadataJson.JSON.createObjectNode();
        n.put("offset", record.offset()).put("leader_epoch", record.leaderEpoch().orElse(-1));
        n.put("timestamp_ms", record.timestamp()).put("timestamp_type", record.timestampType().name);
        n.put("key", MetadataJson.hex(record.key()));
        n.put("value_len", record.value() == null ? -1 : record.value().length).put("value_sha256", sha256(record.value()));
        if (record.headers().iterator().hasNext()) {
            ArrayNode headers = n.putArray("headers");
            for (Header header : record.headers()) headers.addArray().add(header.key()).add(MetadataJson.hex(header.value()));
        }
        return n;
    }

    private static String sha256(byte[] bytes) {
        try {
            return bytes == null ? null : MetadataJson.hex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
