package krabka.test;

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads a partition with Kafka's consumer, up to its end at the time of the start, and prints each record.
 *
 * <pre>ConsumeAll BOOTSTRAP TOPIC PARTITION [read_uncommitted|read_committed [FROM]]</pre>
 *
 * FROM is an offset (0), or "earliest". An offset that the log does not have any more is an error.
 */
public final class ConsumeAll {
    private ConsumeAll() {
    }

    public static void main(String[] args) {
        if (args.length < 3 || args.length > 5) {
            System.err.println("ConsumeAll BOOTSTRAP TOPIC PARTITION [read_uncommitted|read_committed [FROM]]");
            System.exit(2);
        }
        TopicPartition tp = new TopicPartition(args[1], Integer.parseInt(args[2]));
        String isolation = args.length > 3 ? args[3] : "read_uncommitted";
        String from = args.length > 4 ? args[4] : "0";
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(args[0], isolation);
             PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8)) {
            long start = from.equals("earliest") ? consumer.beginningOffsets(List.of(tp)).get(tp) : Long.parseLong(from);
            // Of the committed ones the end is where the first open transaction begins.
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            Consumers.read(consumer, tp, start, end, record -> out.println(Consumers.json(record)));
        }
    }
}
