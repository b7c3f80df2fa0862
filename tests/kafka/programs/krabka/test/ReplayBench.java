package krabka.test;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;

/**
 * How long Kafka's own metadata manager takes, on a metadata topic that is there already, until partitions are ready.
 *
 * <pre>ReplayBench BOOTSTRAP RUNS TOPIC_ID:TOPIC:PARTITION...</pre>
 *
 * Prints a line for each run, each with a new manager in the same process: the later ones show the warm JVM.
 */
public final class ReplayBench {
    private static final String METADATA_TOPIC = "__remote_log_metadata";
    private static final long PATIENCE_NANOS = Duration.ofMinutes(15).toNanos();

    private ReplayBench() {
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("ReplayBench BOOTSTRAP RUNS TOPIC_ID:TOPIC:PARTITION...");
            System.exit(2);
        }
        Set<TopicIdPartition> partitions = new HashSet<>();
        for (int i = 2; i < args.length; i++) {
            String[] part = args[i].split(":");
            partitions.add(new TopicIdPartition(Uuid.fromString(part[0]), Integer.parseInt(part[2]), part[1]));
        }
        int count;
        long events = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(args[0], "read_uncommitted")) {
            List<PartitionInfo> all = consumer.partitionsFor(METADATA_TOPIC);
            count = all.size();
            RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(count);
            Set<TopicPartition> of = partitions.stream().map(tp -> new TopicPartition(METADATA_TOPIC, partitioner.metadataPartition(tp))).collect(Collectors.toSet());
            for (long end : consumer.endOffsets(of).values()) events += end;
            for (long begin : consumer.beginningOffsets(of).values()) events -= begin;
        }
        for (int run = 1; run <= Integer.parseInt(args[1]); run++) {
            ObjectNode line = MetadataJson.JSON.createObjectNode();
            line.put("run", run).put("events", events).put("seconds", secondsUntilReady(args[0], count, partitions));
            System.out.println(line);
        }
        System.exit(0);
    }

    private static double secondsUntilReady(String bootstrap, int count, Set<TopicIdPartition> partitions) throws Exception {
        Path logDir = Files.createTempDirectory("replay-bench");
        Map<String, Object> config = new HashMap<>();
        config.put("broker.id", 1);
        config.put("log.dir", logDir.toString());
        config.put("remote.log.metadata.common.client.bootstrap.servers", bootstrap);
        config.put("remote.log.metadata.topic.num.partitions", count);
        config.put("remote.log.metadata.topic.replication.factor", (short) 1);
        try (TopicBasedRemoteLogMetadataManager manager = new TopicBasedRemoteLogMetadataManager()) {
            long start = System.nanoTime();
            manager.configure(config);
            manager.onBrokerReady();
            manager.onPartitionLeadershipChanges(partitions, Set.of());
            for (TopicIdPartition tp : partitions) {
                while (!manager.isReady(tp)) {
                    if (System.nanoTime() - start > PATIENCE_NANOS) throw new IllegalStateException(tp + " is not ready after 15 minutes");
                    Thread.sleep(1);
                }
            }
            return (System.nanoTime() - start) / 1e9;
        } finally {
            Files.deleteIfExists(logDir);
        }
    }
}
