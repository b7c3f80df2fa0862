package krabka.test;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;

import java.lang.instrument.Instrumentation;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner.Typing;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;

/**
 * A Java agent that writes down what each of Kafka's metadata managers in this process reads, and what it answers.
 *
 * <pre>-javaagent:agent.jar=FILE</pre>
 *
 * A manager's store is changed by one thread and asked by others. Both go through a lock of the store here, and both write
 * their line while they hold it: so the lines before an answer are exactly what the store had applied when it gave it. The
 * lock is held inside of the store only, where no other is waited for, so Kafka runs as it does without.
 */
public final class RecordMetadata {
    private static final String PACKAGE = "org.apache.kafka.server.log.remote.metadata.storage.";
    /** As long as the store itself waits for a partition to become ready. */
    private static final long READY_WAIT_MS = 100;

    /** By the store of each, which a test may have replaced by a spy. */
    private static final Map<Object, Trace.Manager> MANAGERS = Collections.synchronizedMap(new IdentityHashMap<>());
    private static final ThreadLocal<Trace.Question> QUESTION = new ThreadLocal<>();
    private static final ThreadLocal<TopicIdPartition> APPLIED = new ThreadLocal<>();

    private RecordMetadata() {
    }

    public static void premain(String file, Instrumentation instrumentation) {
        Trace.open(file);
        Runtime.getRuntime().addShutdownHook(new Thread(Trace::flush));
        new AgentBuilder.Default()
            .disableClassFormatChanges()
            .with(AgentBuilder.Listener.StreamWriting.toSystemError().withErrorsOnly())
            .type(named(PACKAGE + "TopicBasedRemoteLogMetadataManager"))
            .transform((builder, type, loader, module, domain) -> builder
                .visit(Advice.to(Open.class).on(named("configure")))
                .visit(Advice.to(Close.class).on(named("close")))
                .visit(Advice.to(Write.class).on(namedOneOf("addRemoteLogSegmentMetadata", "updateRemoteLogSegmentMetadata", "putRemotePartitionDeleteMetadata")))
                .visit(Advice.to(Ask.class).on(namedOneOf("remoteLogSegmentMetadata", "nextSegmentWithTxnIndex", "highestOffsetForEpoch",
                    "listRemoteLogSegments", "remoteLogSize", "isReady"))))
            .type(named(PACKAGE + "RemotePartitionMetadataStore"))
            .transform((builder, type, loader, module, domain) -> builder
                .visit(Advice.to(StoreAsked.class).on(namedOneOf("remoteLogSegmentMetadata", "nextSegmentWithTxnIndex", "highestLogOffset",
                    "listRemoteLogSegments", "isInitialized")))
                .visit(Advice.to(StoreChanged.class).on(namedOneOf("maybeLoadPartition", "markInitialized", "clearTopicPartition"))))
            .type(named(PACKAGE + "ConsumerTask"))
            .transform((builder, type, loader, module, domain) -> builder
                .visit(Advice.to(Read.class).on(named("processConsumerRecord")))
                .visit(Advice.to(Applied.class).on(named("shouldProcess")))
                .visit(Advice.to(Assigned.class).on(named("maybeWaitForPartitionAssignments"))))
            .installOn(instrumentation);
    }

    // What is put into Kafka's methods.

    static final class Open {
        @Advice.OnMethodEnter
        static void enter(@Advice.FieldValue("remotePartitionMetadataStore") Object store, @Advice.Argument(0) Map<String, ?> configs) {
            opened(store, configs);
        }
    }

    static final class Close {
        @Advice.OnMethodEnter
        static void enter(@Advice.FieldValue("remotePartitionMetadataStore") Object store) {
            closed(store);
        }
    }

    static final class Write {
        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(@Advice.FieldValue("remotePartitionMetadataStore") Object store, @Advice.Origin("#m") String method,
                         @Advice.Argument(0) RemoteLogMetadata event, @Advice.Return CompletableFuture<Void> written, @Advice.Thrown Throwable thrown) {
            called(store, method, event, written, thrown);
        }
    }

    static final class Ask {
        @Advice.OnMethodEnter
        static Object enter(@Advice.Origin("#m") String method, @Advice.AllArguments Object[] arguments) {
            return asked(method, arguments);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(@Advice.FieldValue("remotePartitionMetadataStore") Object store, @Advice.Enter Object question,
                         @Advice.Return(typing = Typing.DYNAMIC) Object answer, @Advice.Thrown Throwable thrown) {
            answered(store, question, answer, thrown);
        }
    }

    static final class StoreAsked {
        @Advice.OnMethodEnter
        static void enter(@Advice.This Object store, @Advice.FieldValue("idToRemoteLogMetadataCache") Map<?, ?> caches, @Advice.Origin("#m") String method,
                          @Advice.Argument(0) TopicIdPartition tp) {
            storeAsked(store, method, caches.get(tp));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(@Advice.This Object store, @Advice.Return(readOnly = false, typing = Typing.DYNAMIC) Object answer, @Advice.Thrown Throwable thrown) {
            answer = storeAnswered(store, answer, thrown);
        }
    }

    static final class StoreChanged {
        @Advice.OnMethodEnter
        static boolean enter(@Advice.This Object store, @Advice.FieldValue("idToRemoteLogMetadataCache") Map<?, ?> caches,
                             @Advice.Argument(0) TopicIdPartition tp) {
            return beforeChange(store, caches.containsKey(tp));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(@Advice.This Object store, @Advice.Enter boolean known, @Advice.Origin("#m") String method, @Advice.Argument(0) TopicIdPartition tp) {
            afterChange(store, method, tp, known);
        }
    }

    static final class Read {
        @Advice.OnMethodEnter
        static void enter(@Advice.FieldValue("remotePartitionMetadataEventHandler") Object store) {
            reading(store);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(@Advice.FieldValue("remotePartitionMetadataEventHandler") Object store, @Advice.Argument(0) ConsumerRecord<byte[], byte[]> record,
                         @Advice.Thrown Throwable thrown) {
            read(store, record, thrown);
        }
    }

    static final class Applied {
        @Advice.OnMethodExit
        static void exit(@Advice.Argument(0) RemoteLogMetadata event, @Advice.Return boolean applied) {
            applies(applied ? event : null);
        }
    }

    static final class Assigned {
        @Advice.OnMethodExit
        static void exit(@Advice.FieldValue("remotePartitionMetadataEventHandler") Object store,
                         @Advice.FieldValue("topicPartitioner") RemoteLogMetadataTopicPartitioner partitioner,
                         @Advice.FieldValue("processedAssignmentOfUserTopicIdPartitions") Set<TopicIdPartition> partitions,
                         @Advice.FieldValue("assignedMetadataPartitions") Set<Integer> metadataPartitions,
                         @Advice.FieldValue("readOffsetsByMetadataPartition") Map<Integer, Long> read) {
            assigned(store, partitioner, partitions, metadataPartitions, read);
        }
    }

    // What that calls. It stands in Kafka's classes, so it must be public.

    private static Trace.Manager manager(Object store) {
        return MANAGERS.computeIfAbsent(store, s -> new Trace.Manager());
    }

    public static void opened(Object store, Map<String, ?> configs) {
        Object count = configs.get("remote.log.metadata.topic.num.partitions");
        Trace.Manager manager = new Trace.Manager();
        MANAGERS.put(store, manager);
        manager.opened(count == null ? 50 : Integer.parseInt(count.toString()));
    }

    public static void closed(Object store) {
        manager(store).closed();
    }

    public static void called(Object store, String method, RemoteLogMetadata event, CompletableFuture<Void> written, Throwable thrown) {
        Trace.Manager manager = manager(store);
        String value = event == null ? null : MetadataJson.hex(new RemoteLogMetadataSerde().serialize(event));
        if (thrown != null) manager.call(snakeCase(method), value, thrown);
        else written.whenComplete((done, failure) -> manager.call(snakeCase(method), value, failure instanceof CompletionException ? failure.getCause() : failure));
    }

    public static Object asked(String method, Object[] arguments) {
        if (QUESTION.get() != null) return null; // one that the manager asks itself
        Trace.Question question = new Trace.Question(snakeCase(method), arguments);
        QUESTION.set(question);
        return question;
    }

    public static void answered(Object store, Object asked, Object answer, Throwable thrown) {
        if (asked == null) return;
        Trace.Question question = (Trace.Question) asked;
        QUESTION.remove();
        Trace.Manager manager = manager(store);
        if (!question.answered) {
            // It did not get to the store, so what the store has applied did not matter.
            manager.lock.lock();
            try {
                manager.answer(question, answer, thrown);
            } finally {
                manager.lock.unlock();
            }
        } else if (thrown != question.thrownByStore || thrown == null && answer instanceof Long && !answer.equals(question.answerFromStore)) {
            // What the store says was written as the manager's answer, which it then should be.
            Trace.write(manager.line().put("not_recorded", question.ask + ": " + (thrown == null ? answer : thrown)));
        }
    }

    public static void storeAsked(Object store, String method, Object cache) {
        // The store waits a moment for a partition to become ready. Under the lock it never would.
        if (cache != null && !method.equals("isInitialized")) awaitReady(cache);
        manager(store).lock.lock();
    }

    public static Object storeAnswered(Object store, Object answer, Throwable thrown) {
        Trace.Manager manager = manager(store);
        try {
            Object plain = answer instanceof Iterator<?> all ? Trace.list(all) : answer;
            Trace.Question question = QUESTION.get();
            if (question != null && !question.answered && manager.lock.getHoldCount() == 1) {
                question.answered = true;
                question.answerFromStore = question.answerOf(plain);
                question.thrownByStore = thrown;
                manager.answer(question, question.answerFromStore, thrown);
            }
            return plain instanceof List<?> all && answer instanceof Iterator<?> ? all.iterator() : answer;
        } finally {
            manager.lock.unlock();
        }
    }

    public static boolean beforeChange(Object store, boolean known) {
        manager(store).lock.lock();
        return known;
    }

    public static void afterChange(Object store, String method, TopicIdPartition tp, boolean known) {
        Trace.Manager manager = manager(store);
        try {
            switch (method) {
                case "maybeLoadPartition" -> {
                    if (!known) manager.loaded(tp);
                }
                case "clearTopicPartition" -> {
                    if (known) manager.cleared(tp);
                }
                default -> manager.ready(tp);
            }
        } finally {
            manager.lock.unlock();
        }
    }

    public static void reading(Object store) {
        manager(store).lock.lock();
        APPLIED.remove();
    }

    public static void applies(RemoteLogMetadata event) {
        APPLIED.set(event == null ? null : event.topicIdPartition());
    }

    public static void read(Object store, ConsumerRecord<byte[], byte[]> record, Throwable thrown) {
        Trace.Manager manager = manager(store);
        try {
            manager.read(record.partition(), record.offset(), record.value(), APPLIED.get(), thrown);
        } finally {
            manager.lock.unlock();
        }
    }

    public static void assigned(Object store, RemoteLogMetadataTopicPartitioner partitioner, Set<TopicIdPartition> partitions,
                                Set<Integer> metadataPartitions, Map<Integer, Long> read) {
        Map<TopicIdPartition, Integer> where = new LinkedHashMap<>();
        for (TopicIdPartition tp : partitions) where.put(tp, partitioner.metadataPartition(tp));
        Trace.Manager manager = manager(store);
        manager.lock.lock();
        try {
            manager.assigned(where, metadataPartitions, read);
        } finally {
            manager.lock.unlock();
        }
    }

    private static void awaitReady(Object cache) {
        try {
            Method await = cache.getClass().getDeclaredMethod("awaitInitialized", long.class, TimeUnit.class);
            await.setAccessible(true);
            await.invoke(cache, READY_WAIT_MS, TimeUnit.MILLISECONDS);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static String snakeCase(String name) {
        return name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
    }
}
