package krabka.test;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.OpenMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * What Kafka's own classes make of records of the metadata topic.
 *
 * <pre>
 *   MetadataOracle decode FILE...   each record decoded and encoded again
 *   MetadataOracle answer FILE...   the answers of Kafka's metadata store to the questions between and after the records
 * </pre>
 *
 * The files are read one after the other, line by line, as if they were one; "-" is the standard input. Each line of output
 * belongs to one line of input and is written at once, so a test can also hold a conversation. README.md has the formats.
 */
public final class MetadataOracle {
    private final RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
    private final PrintStream out;

    private OpenMetadataStore store;
    /** The last record applied for each partition that the store was told about. */
    private Map<TopicIdPartition, Long> applied;

    private MetadataOracle(PrintStream out) {
        this.out = out;
        reset();
    }

    public static void main(String[] args) throws IOException {
        if (args.length < 2 || !(args[0].equals("decode") || args[0].equals("answer"))) {
            System.err.println("MetadataOracle decode|answer FILE...");
            System.exit(2);
        }
        boolean decode = args[0].equals("decode");
        try (PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8)) {
            MetadataOracle oracle = new MetadataOracle(out);
            for (int i = 1; i < args.length; i++) {
                try (BufferedReader in = args[i].equals("-")
                    ? new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))
                    : Files.newBufferedReader(Path.of(args[i]))) {
                    for (String line; (line = in.readLine()) != null; ) {
                        if (!line.isBlank()) oracle.line(MetadataJson.JSON.readTree(line), decode);
                        if (!in.ready()) out.flush();
                    }
                }
            }
        } catch (PoisonRecord e) {
            System.err.println(e.getMessage());
            e.getCause().printStackTrace();
            System.exit(1);
        }
    }

    private void line(JsonNode line, boolean decode) throws PoisonRecord {
        if (line.has("value")) {
            if (decode) decode(line); else apply(line);
        } else if (line.has("ask")) {
            answer(line);
        } else if (line.has("reset")) {
            reset();
        } else {
            throw new IllegalArgumentException("neither a record nor a question: " + line);
        }
    }

    private void reset() {
        store = new OpenMetadataStore();
        applied = new HashMap<>();
    }

    private static byte[] value(JsonNode record) {
        return record.get("value").isNull() ? null : HexFormat.of().parseHex(record.get("value").asText());
    }

    private void decode(JsonNode record) {
        ObjectNode n = MetadataJson.JSON.createObjectNode();
        n.set("metadata_partition", record.get("metadata_partition"));
        n.set("offset", record.get("offset"));
        try {
            RemoteLogMetadata event = serde.deserialize(value(record));
            n.put("value", MetadataJson.hex(serde.serialize(event)));
            n.set("event", MetadataJson.event(event));
        } catch (RuntimeException e) {
            error(n, e);
        }
        out.println(n);
    }

    /**
     * As Kafka's consumer applies a record of a partition that it has been assigned: what it has applied already it skips, and
     * any exception is the end of its thread. What the store refuses and logs is no exception.
     */
    private void apply(JsonNode record) throws PoisonRecord {
        long offset = record.required("offset").asLong();
        try {
            RemoteLogMetadata event = serde.deserialize(value(record));
            TopicIdPartition tp = event.topicIdPartition();
            load(tp);
            if (offset > applied.get(tp)) {
                store.handleRemoteLogMetadata(event);
                applied.put(tp, offset);
            }
        } catch (RuntimeException e) {
            throw new PoisonRecord(record, e);
        }
    }

    /** Kafka loads a partition when it is assigned, which here is when it is first heard of. */
    private void load(TopicIdPartition tp) {
        if (applied.putIfAbsent(tp, -1L) == null) {
            store.maybeLoadPartition(tp);
            store.markInitialized(tp);
        }
    }

    private void answer(JsonNode question) {
        ObjectNode n = question.deepCopy();
        try {
            answer(question, n);
        } catch (RemoteStorageException | RuntimeException e) {
            error(n, e);
        }
        out.println(n);
    }

    private void answer(JsonNode q, ObjectNode n) throws RemoteStorageException {
        String ask = q.get("ask").asText();
        TopicIdPartition tp = MetadataJson.partition(q);
        if (ask.equals("metadata_partition")) {
            n.put("answer", new RemoteLogMetadataTopicPartitioner(q.required("count").asInt()).metadataPartition(tp));
            return;
        }
        load(tp);
        int epoch = q.path("epoch").asInt();
        long offset = q.path("offset").asLong();
        switch (ask) {
            case "remote_log_segment_metadata" -> n.set("answer", store.segment(tp, epoch, offset).map(MetadataJson::event).orElse(null));
            case "next_segment_with_txn_index" -> n.set("answer", store.nextWithTxnIndex(tp, epoch, offset).map(MetadataJson::event).orElse(null));
            case "highest_offset_for_epoch" -> n.put("answer", store.highestOffset(tp, epoch).orElse(null));
            case "list_remote_log_segments" -> n.set("answer", MetadataJson.events(q.has("epoch") ? store.segments(tp, epoch) : store.segments(tp)));
            // The sum that Kafka's manager makes of its store's list.
            case "remote_log_size" -> {
                long size = 0;
                for (Iterator<RemoteLogSegmentMetadata> all = store.segments(tp, epoch); all.hasNext(); ) size += all.next().segmentSizeInBytes();
                n.put("answer", size);
            }
            default -> throw new IllegalArgumentException("no such question: " + ask);
        }
    }

    private static void error(ObjectNode n, Exception e) {
        n.put("error", e.getClass().getSimpleName()).put("message", e.getMessage());
    }

    /** A record that would end the thread which reads the metadata topic in every broker. */
    private static final class PoisonRecord extends IOException {
        private static final long serialVersionUID = 1;

        PoisonRecord(JsonNode record, Exception cause) {
            super("Kafka's consumer ends at the record of metadata partition " + record.get("metadata_partition") + ", offset "
                + record.get("offset") + ": " + cause, cause);
        }
    }
}
