package krabka.test;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.PreferredLeaderNotAvailableException;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.server.log.remote.metadata.storage.OpenMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * Fills a topic of a running Kafka, waits until its closed segments are tiered, deletes some, and writes what Kafka's consumer
 * then sees.
 *
 * <pre>TierTopic BOOTSTRAP TOPIC DIR [KEY=VALUE...]</pre>
 *
 * The settings are the topic's, beside remote storage and small segments. A topic that is there already is filled further.
 * README.md tells what is in it and which files DIR gets.
 */
public final class TierTopic {
    private static final String METADATA_TOPIC = "__remote_log_metadata";
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int SEGMENT_BYTES = 16 * 1024;
    private static final int ROUNDS = 3;
    private static final long FIRST_TIMESTAMP_MS = 1_760_000_000_000L;
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private final String bootstrap;
    private final String topic;
    private final Path dir;
    private final Admin admin;
    private final Random random = new Random(405);
    private final List<Integer> brokers;
    private long timestamp;

    private TierTopic(String bootstrap, String topic, Path dir, Admin admin) throws Exception {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.dir = dir;
        this.admin = admin;
        this.brokers = admin.describeCluster().nodes().get().stream().map(Node::id).sorted().toList();
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("TierTopic BOOTSTRAP TOPIC DIR [KEY=VALUE...]");
            System.exit(2);
        }
        Map<String, String> settings = new HashMap<>();
        for (int i = 3; i < args.length; i++) settings.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            new TierTopic(args[0], args[1], Path.of(args[2]), admin).run(settings);
        }
    }

    private void run(Map<String, String> settings) throws Exception {
        Files.createDirectories(dir);
        if (!admin.listTopics().names().get().contains(topic)) create(settings);
        timestamp = Math.max(FIRST_TIMESTAMP_MS, latestTimestamp());
        fill();
        awaitTiered();
        Map<TopicPartition, Long> ends = offsets(OffsetSpec.latest());
        TopicPartition trimmed = new TopicPartition(topic, 1);
        long start = ends.get(trimmed) / 3 + 7;
        admin.deleteRecords(Map.of(trimmed, RecordsToDelete.beforeOffset(start))).all().get();
        if (!offsets(OffsetSpec.latestTiered()).get(trimmed).equals(-1L)) awaitDeleted(trimmed, start);
        for (int partition = 0; partition < 2; partition++) expected(new TopicPartition(topic, partition));
        about();
    }

    private void create(Map<String, String> settings) throws Exception {
        Map<String, String> all = new HashMap<>();
        all.put("remote.storage.enable", "true");
        all.put("internal.segment.bytes", Integer.toString(SEGMENT_BYTES));
        all.put("segment.index.bytes", "8192");
        all.put("index.interval.bytes", "512");
        all.put("retention.ms", "-1");
        all.put("file.delete.delay.ms", "100");
        all.put("message.timestamp.after.max.ms", Long.toString(Long.MAX_VALUE));
        all.putAll(settings);
        admin.createTopics(List.of(new NewTopic(topic, Map.of(0, brokers, 1, brokers)).configs(all))).all().get();
        await("the topic to have leaders", () -> description().partitions().stream().allMatch(p -> p.leader() != null && p.isr().size() == brokers.size()));
    }

    private TopicDescription description() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static void await(String what, Callable<Boolean> condition) throws Exception {
        long start = System.nanoTime();
        while (!condition.call()) {
            if (System.nanoTime() - start > PATIENCE.toNanos()) throw new IllegalStateException("waited 2 minutes for " + what);
            Thread.sleep(100);
        }
    }

    // Filling it.

    private Producer<byte[], byte[]> producer(String codec, int batchBytes, String transactionalId) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", codec);
        config.put("batch.size", batchBytes);
        config.put("linger.ms", 20);
        if (transactionalId != null) config.put("transactional.id", topic + "-" + transactionalId);
        Producer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactionalId != null) producer.initTransactions();
        return producer;
    }

    /** Three rounds, in each of them records in every codec, and transactions. With several brokers each has its own leader epoch. */
    private void fill() throws Exception {
        try (Producer<byte[], byte[]> one = producer("lz4", 1024, "one");
             Producer<byte[], byte[]> other = producer("none", 600, "other");
             Producer<byte[], byte[]> open = producer("gzip", 800, "open")) {
            // Open across segments and epochs, and aborted in the end.
            open.beginTransaction();
            for (int round = 0; round < ROUNDS; round++) {
                for (String codec : CODECS) plain(codec);
                for (int i = 0; i < 6; i++) transactions(i, one, other, open);
                if (brokers.size() > 1) moveLeaders();
            }
            open.abortTransaction();
            // Something after the last end of a transaction, which no segment may end with.
            plain("none");
        }
    }

    private void plain(String codec) {
        try (Producer<byte[], byte[]> producer = producer(codec, 1200 + random.nextInt(1500), null)) {
            for (int i = 0; i < 60; i++) {
                timestamp += random.nextInt(2000);
                for (int partition = 0; partition < 2; partition++) {
                    // Of the second partition the times go up and down.
                    long at = partition == 0 ? timestamp : timestamp - random.nextInt(60_000);
                    byte[] key = i % 7 == 3 ? null : bytes(1 + random.nextInt(12));
                    byte[] value = i % 11 == 5 ? null : bytes(i % 13 == 6 ? 0 : random.nextInt(250));
                    Headers headers = new RecordHeaders();
                    if (i % 5 == 1) headers.add("trace", bytes(8)).add("trace", null);
                    producer.send(new ProducerRecord<>(topic, partition, at, key, value, headers));
                }
            }
        }
    }

    private void transactions(int round, Producer<byte[], byte[]> one, Producer<byte[], byte[]> other, Producer<byte[], byte[]> open) {
        one.beginTransaction();
        other.beginTransaction();
        for (int i = 0; i < 5; i++) {
            timestamp += random.nextInt(500);
            one.send(new ProducerRecord<>(topic, i % 2, timestamp, bytes(4), bytes(80 + random.nextInt(200))));
            other.send(new ProducerRecord<>(topic, 0, timestamp, bytes(4), bytes(100 + random.nextInt(200))));
            open.send(new ProducerRecord<>(topic, 0, timestamp, null, bytes(60)));
            open.flush();
        }
        one.flush();
        if (round % 3 == 1) other.abortTransaction(); else other.commitTransaction();
        if (round % 4 == 2) one.abortTransaction(); else one.commitTransaction();
    }

    /** Letters, so that there is something to compress. */
    private byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) bytes[i] = (byte) ('a' + random.nextInt(6));
        return bytes;
    }

    /** The next broker of the list becomes the leader of both partitions. */
    private void moveLeaders() throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> replicas = new HashMap<>();
        Map<TopicPartition, Integer> leaders = new HashMap<>();
        for (var partition : description().partitions()) {
            List<Integer> order = new ArrayList<>(brokers);
            Collections.rotate(order, -1 - brokers.indexOf(partition.leader().id()));
            TopicPartition tp = new TopicPartition(topic, partition.partition());
            replicas.put(tp, Optional.of(new NewPartitionReassignment(order)));
            leaders.put(tp, order.get(0));
        }
        admin.alterPartitionReassignments(replicas).all().get();
        await("the new order of replicas", () -> admin.listPartitionReassignments().reassignments().get().isEmpty());
        await("the leaders to move", () -> {
            try {
                admin.electLeaders(ElectionType.PREFERRED, replicas.keySet()).all().get();
            } catch (ExecutionException e) {
                // Not yet in sync, or the leader already.
                if (!(e.getCause() instanceof ElectionNotNeededException || e.getCause() instanceof PreferredLeaderNotAvailableException)) throw e;
            }
            return description().partitions().stream()
                .allMatch(p -> p.leader() != null && p.leader().id() == leaders.get(new TopicPartition(topic, p.partition())));
        });
    }

    // Waiting for the tier.

    private Map<TopicPartition, Long> offsets(OffsetSpec which) throws Exception {
        Map<TopicPartition, OffsetSpec> ask = new HashMap<>();
        for (int partition = 0; partition < 2; partition++) ask.put(new TopicPartition(topic, partition), which);
        Map<TopicPartition, Long> offsets = new HashMap<>();
        admin.listOffsets(ask).all().get().forEach((tp, info) -> offsets.put(tp, info.offset()));
        return offsets;
    }

    private long latestTimestamp() throws Exception {
        TopicPartition tp = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).partitionResult(tp).get().timestamp();
    }

    /** No client can ask where the active segment begins: all is tiered when nothing more has been for four seconds. */
    private void awaitTiered() throws Exception {
        Map<TopicPartition, Long> before = Map.of();
        for (int still = 0; still < 8; ) {
            Thread.sleep(500);
            Map<TopicPartition, Long> now = offsets(OffsetSpec.latestTiered());
            still = now.equals(before) ? still + 1 : 0;
            before = now;
        }
    }

    /** Until the metadata topic says of every segment that ends before `start` that it is gone. */
    private void awaitDeleted(TopicPartition tp, long start) throws Exception {
        TopicIdPartition id = new TopicIdPartition(description().topicId(), tp);
        await("the deletion of segments before offset " + start + " of " + tp, () -> {
            for (Iterator<RemoteLogSegmentMetadata> all = metadata(id).segments(id); all.hasNext(); ) {
                if (all.next().endOffset() < start) return false;
            }
            return true;
        });
    }

    private OpenMetadataStore metadata(TopicIdPartition id) {
        OpenMetadataStore store = new OpenMetadataStore();
        store.maybeLoadPartition(id);
        store.markInitialized(id);
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(bootstrap, "read_uncommitted")) {
            int count = consumer.partitionsFor(METADATA_TOPIC).size();
            TopicPartition of = new TopicPartition(METADATA_TOPIC, new RemoteLogMetadataTopicPartitioner(count).metadataPartition(id));
            long from = consumer.beginningOffsets(List.of(of)).get(of);
            long to = consumer.endOffsets(List.of(of)).get(of);
            RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
            Consumers.read(consumer, of, from, to, record -> {
                RemoteLogMetadata event = serde.deserialize(record.value());
                if (event.topicIdPartition().equals(id)) store.handleRemoteLogMetadata(event);
            });
        }
        return store;
    }

    // What is to be seen.

    private void expected(TopicPartition tp) throws Exception {
        ObjectNode n = MetadataJson.JSON.createObjectNode();
        n.put("topic", tp.topic()).put("partition", tp.partition());
        Map<String, OffsetSpec> special = new LinkedHashMap<>();
        special.put("earliest", OffsetSpec.earliest());
        special.put("latest", OffsetSpec.latest());
        special.put("earliest_local", OffsetSpec.earliestLocal());
        special.put("latest_tiered", OffsetSpec.latestTiered());
        special.put("max_timestamp", OffsetSpec.maxTimestamp());
        ObjectNode offsets = n.putObject("offsets");
        for (var which : special.entrySet()) {
            var info = admin.listOffsets(Map.of(tp, which.getValue())).partitionResult(tp).get();
            offsets.putObject(which.getKey()).put("offset", info.offset()).put("timestamp_ms", info.timestamp()).put("leader_epoch", info.leaderEpoch().orElse(-1));
        }
        long earliest = offsets.get("earliest").get("offset").asLong();
        long latest = offsets.get("latest").get("offset").asLong();

        long[] times = {Long.MAX_VALUE, Long.MIN_VALUE};
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(bootstrap, "read_uncommitted");
             PrintStream out = new PrintStream(Files.newOutputStream(file(tp, "records.ndjson")), false, StandardCharsets.UTF_8)) {
            Consumers.read(consumer, tp, earliest, latest, record -> {
                out.println(Consumers.json(record));
                times[0] = Math.min(times[0], record.timestamp());
                times[1] = Math.max(times[1], record.timestamp());
            });
            ArrayNode asked = n.putArray("offsets_for_times");
            for (long time : some(times[0], times[1])) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(tp, time)).get(tp);
                ObjectNode answer = asked.addObject().put("ask_ms", time);
                if (found == null) answer.putNull("offset");
                else answer.put("offset", found.offset()).put("timestamp_ms", found.timestamp()).put("leader_epoch", found.leaderEpoch().orElse(-1));
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(bootstrap, "read_committed")) {
            List<long[]> ranges = new ArrayList<>();
            Consumers.read(consumer, tp, earliest, latest, record -> {
                long[] last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
                if (last != null && record.offset() == last[1] + 1) last[1]++; else ranges.add(new long[] {record.offset(), record.offset()});
            });
            ArrayNode committed = n.putArray("read_committed_ranges");
            for (long[] range : ranges) committed.addArray().add(range[0]).add(range[1]);
        }
        Files.writeString(file(tp, "json"), MetadataJson.JSON.writerWithDefaultPrettyPrinter().writeValueAsString(n) + "\n");
    }

    private Path file(TopicPartition tp, String extension) {
        return dir.resolve(tp + "." + extension);
    }

    /** The edges and what is around them, and forty between. */
    private static Set<Long> some(long first, long last) {
        Set<Long> times = new TreeSet<>(List.of(0L, first - 1, first, first + 1, last - 1, last, last + 1));
        IntStream.range(1, 40).forEach(i -> times.add(first + (last - first) * i / 40));
        return times;
    }

    private void about() throws Exception {
        ObjectNode about = MetadataJson.JSON.createObjectNode();
        about.put("topic", topic).put("topic_id", description().topicId().toString());
        about.put("partitions", 2).put("brokers", brokers.size()).put("segment_bytes", SEGMENT_BYTES);
        System.out.println(about);
    }
}
