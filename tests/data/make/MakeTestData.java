import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.server.log.remote.metadata.storage.MetadataAnswers;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.storage.internals.log.*;

/**
 * Fills topics of a running Apache Kafka with tiered storage on, waits until the closed segments are tiered, writes what
 * Kafka's own client sees (`produce`), and, from the files of a stopped broker, what Kafka's own classes decode (`decode`).
 */
public final class MakeTestData {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long T0 = 1_760_000_000_000L;

    /** What differs between the sets. */
    record Params(long seed, String[] topics, int epochs, int segmentBytes, int indexInterval, int recordsPerRound, String[] codecs) {}

    static Params params(String name) {
        return switch (name) {
            case "main" -> new Params(7, new String[] {"orders", "payments", "clicks.log-append_time", "retired", "trimmed"},
                4, 24 * 1024, 512, 90, new String[] {"none", "gzip", "snappy", "lz4", "zstd"});
            default -> {
                // Any other name is its own seed, with other names, sizes and mixes.
                long seed = name.hashCode() * 2654435761L;
                Random r = new Random(seed);
                String longName = "L".repeat(249 - 2) + "-1";
                List<String> codecs = new ArrayList<>(List.of("zstd", "none", "lz4", "snappy", "gzip"));
                Collections.shuffle(codecs, r);
                yield new Params(seed, new String[] {"a", "pay_ments.v2", longName, "9-retired", "_trimmed"},
                    6, 16 * 1024 + r.nextInt(20_000), 300 + r.nextInt(900), 60 + r.nextInt(60), codecs.toArray(new String[0]));
            }
        };
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            new MakeTestData(args[1], params(args[2]), Paths.get(args[3])).produce();
        } else if (args[0].equals("decode")) {
            decode(Paths.get(args[1]));
        } else {
            throw new IllegalArgumentException("produce BOOTSTRAP SET OUT | decode OUT");
        }
    }

    final String bootstrap;
    final Params p;
    final Path out;
    final Random random;
    final Admin admin;

    MakeTestData(String bootstrap, Params p, Path out) {
        this.bootstrap = bootstrap;
        this.p = p;
        this.out = out;
        this.random = new Random(p.seed);
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    Producer<byte[], byte[]> producer(String codec, int batch, String transactionalId) {
        Map<String, Object> c = new HashMap<>();
        c.put("bootstrap.servers", bootstrap);
        c.put("compression.type", codec);
        c.put("batch.size", batch);
        c.put("linger.ms", 40);
        c.put("max.request.size", 2_000_000);
        if (transactionalId != null) c.put("transactional.id", transactionalId);
        Producer<byte[], byte[]> made = new KafkaProducer<>(c, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactionalId != null) made.initTransactions();
        return made;
    }

    byte[] text(int length) {
        StringBuilder s = new StringBuilder();
        String[] words = {"tier", "segment", "offset", "epoch", "leader", "copy", "fetch", "index", "Grüße", "数据"};
        while (s.length() < length) s.append(words[random.nextInt(words.length)]).append(random.nextInt(1000)).append(' ');
        return Arrays.copyOf(s.toString().getBytes(StandardCharsets.UTF_8), length);
    }

    byte[] noise(int length) {
        byte[] b = new byte[length];
        random.nextBytes(b);
        return b;
    }

    void moveLeader(String topic, int partition, int to, int other) throws Exception {
        TopicPartition tp = new TopicPartition(topic, partition);
        admin.alterPartitionReassignments(Map.of(tp, Optional.of(new NewPartitionReassignment(List.of(to, other))))).all().get();
        while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) Thread.sleep(50);
        for (int i = 0; i < 100; i++) {
            try { admin.electLeaders(ElectionType.PREFERRED, Set.of(tp)).all().get(); } catch (Exception e) { /* already there, or not yet in sync */ }
            if (admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(partition).leader().id() == to) return;
            Thread.sleep(100);
        }
        throw new IllegalStateException("leader did not move");
    }

    void produce() throws Exception {
        int brokers = admin.describeCluster().nodes().get().size();
        Map<String, String> base = Map.of("remote.storage.enable", "true", "internal.segment.bytes", "" + p.segmentBytes,
            "index.interval.bytes", "" + p.indexInterval, "retention.ms", "-1", "retention.bytes", "-1", "segment.index.bytes", "8192",
            "max.message.bytes", "2000000", "file.delete.delay.ms", "100", "message.timestamp.after.max.ms", "9223372036854775807");
        List<NewTopic> topics = new ArrayList<>();
        int[] counts = {3, 2, 1, 2, 1};
        for (int i = 0; i < p.topics.length; i++) {
            Map<String, String> c = new HashMap<>(base);
            if (i == 2) c.put("message.timestamp.type", "LogAppendTime");
            if (i == 3) c.put("retention.bytes", "" + p.segmentBytes * 4);
            Map<Integer, List<Integer>> where = new HashMap<>();
            for (int n = 0; n < counts[i]; n++) where.put(n, i < 2 && brokers > 1 ? List.of(1, 2) : List.of(1));
            topics.add(new NewTopic(p.topics[i], where).configs(c));
        }
        admin.createTopics(topics).all().get();
        Thread.sleep(1500);

        // The first two topics and a long transaction across leader epochs.
        String orders = p.topics[0], payments = p.topics[1];
        Producer<byte[], byte[]> longRunner = producer("none", 2048, "tx-long");
        Producer<byte[], byte[]> ta = producer("lz4", 1024, "tx-a"), tb = producer("none", 512, "tx-b");
        long t = T0;
        for (int e = 0; e < p.epochs; e++) {
            for (int part = 0; part < counts[0]; part++) {
                for (int c = 0; c < p.codecs.length; c++) {
                    try (Producer<byte[], byte[]> producer = producer(p.codecs[c], part == 2 ? 200_000 : 1500 + random.nextInt(2500), null)) {
                        for (int i = 0; i < p.recordsPerRound / (part == 2 ? 6 : 1); i++) {
                            t += random.nextInt(2000);
                            long at = part == 1 ? t - random.nextInt(120_000) : t;
                            byte[] key = i % 7 == 3 ? null : ("k" + i).getBytes(StandardCharsets.UTF_8);
                            byte[] value = i % 11 == 5 ? null : i % 13 == 6 ? new byte[0] : part == 2 && i % 9 == 0 ? noise(3000 + random.nextInt(9000)) : text(random.nextInt(260));
                            RecordHeaders headers = new RecordHeaders();
                            if (part == 1 && i % 3 == 0) headers.add("trace", noise(8)).add("trace", null).add("ключ", text(random.nextInt(30)));
                            producer.send(new ProducerRecord<>(orders, part, at, key, value, headers));
                        }
                        producer.flush();
                    }
                }
            }
            // Transactions: committed and aborted, interleaved, some empty of records on one partition, plain records between.
            if (e == 0) longRunner.beginTransaction();
            for (int round = 0; round < 10; round++) {
                longRunner.send(new ProducerRecord<>(payments, 0, T0 + round, text(5), text(200)));
                longRunner.flush();
                ta.beginTransaction();
                tb.beginTransaction();
                for (int i = 0; i < 6; i++) {
                    t += random.nextInt(500);
                    ta.send(new ProducerRecord<>(payments, i % 2, t, text(4), text(80 + random.nextInt(300))));
                    if (round % 4 != 3 || i > 2) tb.send(new ProducerRecord<>(payments, 0, t, text(4), text(100 + random.nextInt(400))));
                }
                ta.flush();
                if (round % 3 == 1) tb.abortTransaction(); else tb.commitTransaction();
                if (round % 4 == 2) ta.abortTransaction(); else ta.commitTransaction();
                try (Producer<byte[], byte[]> plain = producer("zstd", 4096, null)) {
                    for (int i = 0; i < 4; i++) plain.send(new ProducerRecord<>(payments, round % 2, t, null, text(150)));
                }
            }
            if (e == p.epochs / 2) { longRunner.abortTransaction(); longRunner.beginTransaction(); }
            if (brokers > 1) {
                int to = e % 2 == 0 ? 2 : 1;
                for (int part = 0; part < 2; part++) { moveLeader(orders, part, to, 3 - to); moveLeader(payments, part, to, 3 - to); }
            }
        }
        longRunner.commitTransaction();
        longRunner.close(); ta.close(); tb.close();

        // LogAppendTime; timestamps given by the producer are replaced.
        for (String codec : p.codecs) {
            try (Producer<byte[], byte[]> producer = producer(codec, 3000, null)) {
                for (int i = 0; i < p.recordsPerRound * 2; i++) producer.send(new ProducerRecord<>(p.topics[2], 0, T0 + i, text(6), text(random.nextInt(300))));
            }
            Thread.sleep(37);
        }
        // One topic that loses its oldest segments to retention, one whose start is moved by DeleteRecords.
        try (Producer<byte[], byte[]> producer = producer("none", 4000, null)) {
            for (int i = 0; i < p.recordsPerRound * 12; i++) {
                producer.send(new ProducerRecord<>(p.topics[3], i % 2, T0 + i, text(6), text(200)));
                producer.send(new ProducerRecord<>(p.topics[4], 0, T0 + i, text(6), text(200)));
            }
        }
        settle(List.of(orders, payments, p.topics[2], p.topics[4]));
        admin.deleteRecords(Map.of(new TopicPartition(p.topics[4], 0), RecordsToDelete.beforeOffset(p.recordsPerRound * 5 + 3))).all().get();
        Thread.sleep(4000);

        Files.createDirectories(out.resolve("expected"));
        for (int i = 0; i < p.topics.length; i++) {
            if (i == 3) continue;
            for (int part = 0; part < counts[i]; part++) expected(new TopicPartition(p.topics[i], part));
        }
        // The retired topic goes away altogether: partition-delete events.
        admin.deleteTopics(List.of(p.topics[3])).all().get();
        Thread.sleep(5000);
        ObjectNode about = JSON.createObjectNode();
        about.put("kafka", org.apache.kafka.common.utils.AppInfoParser.getVersion());
        about.put("segment_bytes", p.segmentBytes).put("index_interval_bytes", p.indexInterval).put("brokers", brokers);
        ObjectNode ids = about.putObject("topic_ids");
        admin.describeTopics(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()).allTopicNames().get()
            .forEach((name, d) -> ids.put(name, d.topicId().toString()));
        Files.writeString(out.resolve("about.json"), JSON.writerWithDefaultPrettyPrinter().writeValueAsString(about) + "\n");
        admin.close();
    }

    /** Waits until the latest tiered offset stands still for 4 s. */
    void settle(List<String> topics) throws Exception {
        Map<TopicPartition, Long> before = null;
        for (int still = 0; still < 4; ) {
            Thread.sleep(1000);
            Map<TopicPartition, OffsetSpec> ask = new HashMap<>();
            admin.describeTopics(topics).allTopicNames().get().forEach((name, d) ->
                d.partitions().forEach(i -> ask.put(new TopicPartition(name, i.partition()), OffsetSpec.latestTiered())));
            Map<TopicPartition, Long> now = new HashMap<>();
            admin.listOffsets(ask).all().get().forEach((tp, r) -> now.put(tp, r.offset()));
            still = now.equals(before) ? still + 1 : 0;
            before = now;
        }
        System.err.println("tiered up to " + before);
    }

    static String sha256(byte[] b) throws Exception {
        return b == null ? null : HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b));
    }

    /** What a consumer of Kafka's own sees of one partition: records, committed ranges, special offsets, offsets for timestamps. */
    void expected(TopicPartition tp) throws Exception {
        Map<String, Object> c = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "auto.offset.reset", "earliest", "max.partition.fetch.bytes", 3_000_000));
        String name = tp.topic().length() > 60 ? tp.topic().substring(0, 8) + "-long" : tp.topic();
        long first = Long.MAX_VALUE, last = 0, end;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             PrintStream o = new PrintStream(Files.newOutputStream(out.resolve("expected/" + name + "-" + tp.partition() + ".records.ndjson")), false, StandardCharsets.UTF_8)) {
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            end = consumer.endOffsets(List.of(tp)).get(tp);
            while (consumer.position(tp) < end) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofSeconds(1)).records(tp)) {
                    ObjectNode n = JSON.createObjectNode();
                    n.put("offset", r.offset()).put("leader_epoch", r.leaderEpoch().orElse(-1)).put("timestamp_ms", r.timestamp()).put("timestamp_type", r.timestampType().name);
                    n.put("key", r.key() == null ? null : HexFormat.of().formatHex(r.key()));
                    n.put("value_len", r.value() == null ? -1 : r.value().length).put("value_sha256", sha256(r.value()));
                    if (r.headers().toArray().length > 0) {
                        ArrayNode h = n.putArray("headers");
                        for (Header x : r.headers()) h.addArray().add(x.key()).add(x.value() == null ? null : HexFormat.of().formatHex(x.value()));
                    }
                    o.println(n);
                    first = Math.min(first, r.timestamp());
                    last = Math.max(last, r.timestamp());
                }
            }
        }
        ObjectNode n = JSON.createObjectNode();
        n.put("topic", tp.topic()).put("partition", tp.partition());
        ObjectNode special = n.putObject("offsets");
        for (var s : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "earliest_local", OffsetSpec.earliestLocal(),
            "latest_tiered", OffsetSpec.latestTiered(), "max_timestamp", OffsetSpec.maxTimestamp()).entrySet()) {
            var r = admin.listOffsets(Map.of(tp, s.getValue())).partitionResult(tp).get();
            special.putObject(s.getKey()).put("offset", r.offset()).put("timestamp_ms", r.timestamp()).put("leader_epoch", r.leaderEpoch().orElse(-1));
        }
        ArrayNode committed = n.putArray("read_committed_ranges");
        c.put("isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            long from = -1, to = -1;
            while (consumer.position(tp) < end) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofSeconds(1)).records(tp)) {
                    if (r.offset() != to + 1 || from < 0) { if (from >= 0) committed.addArray().add(from).add(to); from = r.offset(); }
                    to = r.offset();
                }
            }
            if (from >= 0) committed.addArray().add(from).add(to);
            ArrayNode times = n.putArray("offsets_for_times");
            Set<Long> ask = new TreeSet<>(List.of(0L, first - 1, first, first + 1, last - 1, last, last + 1));
            for (int i = 1; i < 40; i++) ask.add(first + (last - first) * i / 40);
            for (long at : ask) {
                OffsetAndTimestamp r = consumer.offsetsForTimes(Map.of(tp, at)).get(tp);
                ObjectNode x = times.addObject().put("ask_ms", at);
                if (r == null) x.putNull("offset"); else x.put("offset", r.offset()).put("timestamp_ms", r.timestamp()).put("leader_epoch", r.leaderEpoch().orElse(-1));
            }
        }
        Files.writeString(out.resolve("expected/" + name + "-" + tp.partition() + ".json"), JSON.writerWithDefaultPrettyPrinter().writeValueAsString(n) + "\n");
    }

    // ---- decode: from files alone ----

    static void decode(Path out) throws Exception {
        metadata(out);
        indexes(out);
    }

    static ObjectNode id(RemoteLogSegmentId id) {
        return JSON.createObjectNode().put("topic_id", id.topicIdPartition().topicId().toString()).put("topic", id.topicIdPartition().topic())
            .put("partition", id.topicIdPartition().partition()).put("segment_id", id.id().toString());
    }

    static ObjectNode event(RemoteLogMetadata m) {
        ObjectNode n = JSON.createObjectNode();
        n.put("type", m.getClass().getSimpleName()).put("broker_id", m.brokerId()).put("event_timestamp_ms", m.eventTimestampMs());
        if (m instanceof RemoteLogSegmentMetadata s) {
            n.set("id", id(s.remoteLogSegmentId()));
            n.put("start_offset", s.startOffset()).put("end_offset", s.endOffset()).put("max_timestamp_ms", s.maxTimestampMs())
                .put("segment_size_in_bytes", s.segmentSizeInBytes()).put("state", s.state().name()).put("txn_idx_empty", s.isTxnIdxEmpty());
            ObjectNode epochs = n.putObject("segment_leader_epochs");
            s.segmentLeaderEpochs().forEach((k, v) -> epochs.put("" + k, v));
            s.customMetadata().ifPresent(x -> n.put("custom_metadata", HexFormat.of().formatHex(x.value())));
        } else if (m instanceof RemoteLogSegmentMetadataUpdate u) {
            n.set("id", id(u.remoteLogSegmentId()));
            n.put("state", u.state().name());
            u.customMetadata().ifPresent(x -> n.put("custom_metadata", HexFormat.of().formatHex(x.value())));
        } else if (m instanceof RemotePartitionDeleteMetadata d) {
            n.put("topic_id", d.topicIdPartition().topicId().toString()).put("topic", d.topicIdPartition().topic()).put("partition", d.topicIdPartition().partition()).put("state", d.state().name());
        }
        return n;
    }

    /** The metadata topic's raw log, decoded by Kafka's serde, and the answers of Kafka's cache after replaying it. */
    static void metadata(Path out) throws Exception {
        Path root = out.resolve("metadata-topic");
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        MetadataAnswers store = new MetadataAnswers();
        Set<TopicIdPartition> partitions = new LinkedHashSet<>();
        Set<TopicIdPartition> deleted = new LinkedHashSet<>();
        Map<TopicIdPartition, Set<Integer>> epochs = new LinkedHashMap<>();
        Map<TopicIdPartition, TreeSet<Long>> offsets = new LinkedHashMap<>();
        List<Path> logs;
        try (Stream<Path> s = Files.walk(root)) { logs = s.filter(f -> f.toString().endsWith(".log")).sorted().toList(); }
        try (PrintStream o = new PrintStream(Files.newOutputStream(out.resolve("metadata-topic/events.ndjson")), false, StandardCharsets.UTF_8)) {
            for (Path log : logs) {
                FileRecords records = FileRecords.open(log.toFile(), false);
                for (FileLogInputStream.FileChannelRecordBatch batch : records.batches()) {
                    for (org.apache.kafka.common.record.internal.Record r : batch) {
                        byte[] value = new byte[r.valueSize()];
                        r.value().get(value);
                        RemoteLogMetadata m = serde.deserialize(value);
                        String dir = log.getParent().getFileName().toString();
                        ObjectNode n = JSON.createObjectNode();
                        n.put("metadata_partition", Integer.parseInt(dir.substring(dir.lastIndexOf('-') + 1))).put("offset", r.offset()).put("key_null", !r.hasKey()).put("timestamp_ms", r.timestamp());
                        n.put("value", HexFormat.of().formatHex(value));
                        n.set("event", event(m));
                        o.println(n);
                        TopicIdPartition tp = m.topicIdPartition();
                        if (partitions.add(tp)) { store.maybeLoadPartition(tp); store.markInitialized(tp); }
                        if (m instanceof RemoteLogSegmentMetadata s) {
                            store.handleRemoteLogSegmentMetadata(s);
                            epochs.computeIfAbsent(tp, x -> new TreeSet<>()).addAll(s.segmentLeaderEpochs().keySet());
                            TreeSet<Long> at = offsets.computeIfAbsent(tp, x -> new TreeSet<>());
                            at.addAll(List.of(s.startOffset() - 1, s.startOffset(), s.endOffset(), s.endOffset() + 1, (s.startOffset() + s.endOffset()) / 2));
                            s.segmentLeaderEpochs().values().forEach(v -> { at.add(v); at.add(v - 1); });
                        } else if (m instanceof RemoteLogSegmentMetadataUpdate u) {
                            store.handleRemoteLogSegmentMetadataUpdate(u);
                        } else if (m instanceof RemotePartitionDeleteMetadata d) {
                            store.handleRemotePartitionDeleteMetadata(d);
                            if (d.state() == RemotePartitionDeleteState.DELETE_PARTITION_FINISHED) deleted.add(tp);
                        }
                    }
                }
                records.close();
            }
        }
        ObjectNode all = JSON.createObjectNode();
        for (TopicIdPartition tp : partitions) {
            ObjectNode n = all.putObject(tp.topicId() + ":" + tp.topic() + ":" + tp.partition());
            if (deleted.contains(tp)) { n.put("deleted", true); continue; }
            ArrayNode highest = n.putArray("highest_offset_for_epoch");
            ArrayNode listed = n.putArray("list_by_epoch");
            ArrayNode lookups = n.putArray("lookups");
            for (int epoch : epochs.getOrDefault(tp, Set.of())) {
                ObjectNode h = highest.addObject().put("epoch", epoch);
                store.highest(tp, epoch).ifPresentOrElse(v -> h.put("offset", v), () -> h.putNull("offset"));
                ArrayNode ids = listed.addObject().put("epoch", epoch).putArray("segment_ids");
                store.ofEpoch(tp, epoch).forEachRemaining(s -> ids.add(s.remoteLogSegmentId().id().toString()));
                for (long offset : offsets.get(tp)) {
                    if (offset < 0) continue;
                    ObjectNode l = lookups.addObject().put("epoch", epoch).put("offset", offset);
                    store.lookup(tp, epoch, offset).ifPresentOrElse(s -> l.put("segment_id", s.remoteLogSegmentId().id().toString()), () -> l.putNull("segment_id"));
                    store.nextWithTxn(tp, epoch, offset).ifPresent(s -> l.put("next_with_txn_index", s.remoteLogSegmentId().id().toString()));
                }
            }
            ArrayNode ids = n.putArray("list_all");
            store.all(tp).forEachRemaining(s -> ids.addObject().put("segment_id", s.remoteLogSegmentId().id().toString()).put("state", s.state().name()));
        }
        Files.writeString(out.resolve("metadata-topic/cache-answers.json"), JSON.writeValueAsString(all) + "\n");
    }

    /** Kafka's own answers from each segment's index files: entries, lookups, aborted transactions; and the batches of its log. */
    static void indexes(Path out) throws Exception {
        List<Path> logs;
        try (Stream<Path> s = Files.walk(out.resolve("partitions"))) { logs = s.filter(f -> f.toString().endsWith(".log")).sorted().toList(); }
        try (PrintStream o = new PrintStream(Files.newOutputStream(out.resolve("expected/segments.ndjson")), false, StandardCharsets.UTF_8)) {
            for (Path log : logs) {
                String base = log.getFileName().toString().replace(".log", "");
                long baseOffset = Long.parseLong(base);
                ObjectNode n = JSON.createObjectNode();
                n.put("dir", log.getParent().getFileName().toString()).put("base_offset", baseOffset).put("size", Files.size(log)).put("sha256", sha256(Files.readAllBytes(log)));
                ArrayNode batches = n.putArray("batches");
                FileRecords records = FileRecords.open(log.toFile(), false);
                long last = baseOffset, maxTs = -1;
                for (FileLogInputStream.FileChannelRecordBatch b : records.batches()) {
                    batches.addArray().add(b.position()).add(b.sizeInBytes()).add(b.baseOffset()).add(b.lastOffset()).add(b.partitionLeaderEpoch()).add(b.maxTimestamp())
                        .add(b.compressionType().name).add(b.producerId()).add(b.baseSequence()).add((b.isTransactional() ? "t" : "") + (b.isControlBatch() ? "c" : ""));
                    last = b.lastOffset();
                    maxTs = Math.max(maxTs, b.maxTimestamp());
                }
                records.close();
                Path tmp = Files.createTempDirectory("idx");
                File oi = Files.copy(log.resolveSibling(base + ".index"), tmp.resolve(base + ".index")).toFile();
                File ti = Files.copy(log.resolveSibling(base + ".timeindex"), tmp.resolve(base + ".timeindex")).toFile();
                OffsetIndex offsetIndex = new OffsetIndex(oi, baseOffset, Integer.MAX_VALUE, false);
                ArrayNode ol = n.put("offset_index_entries", offsetIndex.entries()).putArray("offset_lookups");
                for (long at = baseOffset; at <= last + 1; at += Math.max(1, (last - baseOffset) / 25)) {
                    OffsetPosition r = offsetIndex.lookup(at);
                    ol.addArray().add(at).add(r.offset()).add(r.position());
                }
                TimeIndex timeIndex = new TimeIndex(ti, baseOffset, Integer.MAX_VALUE, false);
                ArrayNode tl = n.put("time_index_entries", timeIndex.entries()).putArray("time_lookups");
                long firstTs = timeIndex.entries() == 0 ? 0 : timeIndex.entry(0).timestamp();
                for (int i = -1; i <= 20; i++) {
                    long at = firstTs + (maxTs - firstTs) * i / 19;
                    TimestampOffset r = timeIndex.lookup(at);
                    tl.addArray().add(at).add(r.timestamp()).add(r.offset());
                }
                Path tx = log.resolveSibling(base + ".txnindex");
                ArrayNode aborted = n.putArray("aborted");
                if (Files.exists(tx)) {
                    TransactionIndex index = new TransactionIndex(baseOffset, Files.copy(tx, tmp.resolve(base + ".txnindex")).toFile());
                    for (AbortedTxn a : index.allAbortedTxns()) aborted.addArray().add(a.producerId()).add(a.firstOffset()).add(a.lastOffset()).add(a.lastStableOffset());
                }
                o.println(n);
                try (Stream<Path> s = Files.list(tmp)) { for (Path f : s.toList()) Files.delete(f); }
                Files.delete(tmp);
            }
        }
    }
}
