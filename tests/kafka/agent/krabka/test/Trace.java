package krabka.test;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * The file that a recording is written to, line by line. What repeats itself (topic partitions, records, segments) has a line
 * of its own before the first that names its number.
 */
final class Trace {
    private static PrintWriter out;
    private static final Map<String, Integer> NUMBERS = new HashMap<>();
    private static final Map<String, Integer> LAST_NUMBER = new HashMap<>();
    private static final Map<String, Integer> RECORD_OF_VALUE = new HashMap<>();

    private Trace() {
    }

    static synchronized void open(String file) {
        try {
            out = new PrintWriter(Files.newBufferedWriter(Path.of(file)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static ObjectNode line() {
        return MetadataJson.JSON.createObjectNode();
    }

    static synchronized void write(ObjectNode line) {
        out.println(line);
    }

    static synchronized void flush() {
        out.flush();
    }

    /** The number of a thing of this kind, after a line that tells what it is. */
    private static synchronized int number(String kind, ObjectNode what) {
        String key = kind + what;
        Integer known = NUMBERS.get(key);
        if (known != null) return known;
        int number = next(kind);
        NUMBERS.put(key, number);
        ObjectNode line = line().put(kind, number);
        line.setAll(what);
        write(line);
        return number;
    }

    private static synchronized int next(String kind) {
        return LAST_NUMBER.merge(kind, 1, Integer::sum);
    }

    static int partition(TopicIdPartition tp) {
        return number("topic_partition", MetadataJson.put(line(), tp));
    }

    private static synchronized int record(int metadataPartition, long offset, byte[] value) {
        String hex = MetadataJson.hex(value);
        int number = number("record", line().put("metadata_partition", metadataPartition).put("offset", offset).put("value", hex));
        RECORD_OF_VALUE.put(hex, number);
        return number;
    }

    private static int segment(RemoteLogSegmentMetadata segment) {
        ObjectNode metadata = line();
        metadata.set("metadata", MetadataJson.event(segment));
        return number("segment", metadata);
    }

    /** One instance of Kafka's manager. Whoever writes what it read or answered holds the lock, so lines stand in that order. */
    static final class Manager {
        final int number = next("manager");
        final ReentrantLock lock = new ReentrantLock();
        /** The last offset read of each metadata partition. */
        private final Map<Integer, Long> position = new TreeMap<>();
        private final Set<TopicIdPartition> ready = new HashSet<>();
        private Set<TopicIdPartition> assigned = Set.of();
        private String assignment = "";
        /** How often something about a topic partition has changed, and what was answered then. */
        private final Map<TopicIdPartition, Integer> changes = new HashMap<>();
        private final Map<String, String> answers = new HashMap<>();

        ObjectNode line() {
            return Trace.line().put("manager", number);
        }

        private void changed(TopicIdPartition tp) {
            changes.merge(tp, 1, Integer::sum);
        }

        private void put(ObjectNode line, String name) {
            ObjectNode at = line.putObject(name);
            position.forEach((partition, offset) -> at.put(partition.toString(), offset));
        }

        void opened(int metadataPartitions) {
            write(line().put("metadata_partition_count", metadataPartitions));
        }

        void closed() {
            write(line().put("closed", true));
        }

        void loaded(TopicIdPartition tp) {
            ready.remove(tp);
            changed(tp);
            write(line().put("loaded", partition(tp)));
        }

        void ready(TopicIdPartition tp) {
            if (ready.add(tp)) {
                changed(tp);
                write(line().put("ready", partition(tp)));
            }
        }

        void cleared(TopicIdPartition tp) {
            ready.remove(tp);
            changed(tp);
            write(line().put("cleared", partition(tp)));
        }

        /** Where each topic partition's events are, and up to where they have been read, when that is not as it was. */
        void assigned(Map<TopicIdPartition, Integer> partitions, Set<Integer> metadataPartitions, Map<Integer, Long> read) {
            String now = new HashMap<>(partitions) + " " + metadataPartitions;
            if (now.equals(assignment) && read.equals(position)) return;
            assignment = now;
            assigned = Set.copyOf(partitions.keySet());
            position.clear();
            position.putAll(read);
            ObjectNode line = line();
            ArrayNode all = MetadataJson.JSON.createArrayNode();
            partitions.forEach((tp, metadataPartition) -> {
                changed(tp);
                all.addObject().put("topic_partition", partition(tp)).put("metadata_partition", metadataPartition);
            });
            line.set("assigned", all);
            ArrayNode of = line.putArray("metadata_partitions");
            metadataPartitions.stream().sorted().forEach(of::add);
            put(line, "position");
            write(line);
        }

        void read(int metadataPartition, long offset, byte[] value, TopicIdPartition applied, Throwable thrown) {
            ObjectNode line = line().put("read", record(metadataPartition, offset, value)).put("applied", applied != null && thrown == null);
            if (thrown == null) position.put(metadataPartition, offset); else line.put("error", thrown.getClass().getSimpleName());
            if (applied != null) changed(applied);
            write(line);
        }

        /** The end of a write. When it went well, its record has been read and is known by its number. */
        void call(String call, String value, Throwable thrown) {
            synchronized (Trace.class) {
                ObjectNode line = line().put("call", call);
                Integer record = RECORD_OF_VALUE.get(value);
                if (record == null) line.put("value", value); else line.put("record", record);
                if (thrown != null) line.put("error", thrown.getClass().getSimpleName());
                write(line);
            }
        }

        /** Writes an answer, unless the same was written since something about the topic partition last changed. */
        void answer(Question question, Object answer, Throwable thrown) {
            TopicIdPartition tp = (TopicIdPartition) question.arguments[0];
            ObjectNode line = line().put("ask", question.ask).put("topic_partition", partition(tp));
            if (question.arguments.length > 1) line.put("epoch", (Integer) question.arguments[1]);
            if (question.arguments.length > 2) line.put("offset", (Long) question.arguments[2]);
            String asked = line.toString();
            line.put("state", ready.contains(tp) ? "ready" : assigned.contains(tp) ? "assigned" : "unassigned");
            if (thrown != null) line.put("error", thrown.getClass().getSimpleName()); else put(line, answer);
            String told = changes.get(tp) + " " + line;
            if (told.equals(answers.put(asked, told))) return;
            put(line, "position");
            write(line);
        }

        private static void put(ObjectNode line, Object answer) {
            Object plain = answer instanceof Optional<?> maybe ? maybe.orElse(null) : answer;
            if (plain == null) line.putNull("answer");
            else if (plain instanceof Boolean is) line.put("answer", is);
            else if (plain instanceof Long number) line.put("answer", number);
            else if (plain instanceof RemoteLogSegmentMetadata segment) line.put("answer", segment(segment));
            else if (plain instanceof List<?> segments) {
                List<Integer> numbers = new ArrayList<>();
                for (Object segment : segments) numbers.add(segment((RemoteLogSegmentMetadata) segment));
                ArrayNode all = line.putArray("answer");
                numbers.forEach(all::add);
            } else throw new IllegalArgumentException("an answer of " + answer.getClass());
        }
    }

    /** A question on its way from the manager to its store. */
    static final class Question {
        final String ask;
        final Object[] arguments;
        boolean answered;
        Object answerFromStore;
        Throwable thrownByStore;

        Question(String ask, Object[] arguments) {
            this.ask = ask;
            this.arguments = arguments;
        }

        /** The manager's answer to this question, made of its store's. */
        Object answerOf(Object fromStore) {
            if (ask.equals("remote_log_size") && fromStore instanceof List<?> segments) {
                long size = 0;
                for (Object segment : segments) size += ((RemoteLogSegmentMetadata) segment).segmentSizeInBytes();
                return size;
            }
            return fromStore;
        }
    }

    static List<Object> list(Iterator<?> all) {
        List<Object> list = new ArrayList<>();
        all.forEachRemaining(list::add);
        return list;
    }
}
