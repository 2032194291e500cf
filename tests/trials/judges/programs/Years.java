import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** What programs of any year do, by Kafka's clients 2.8 and later. Prints a line for each part.
    java Years.java BOOTSTRAP SOURCE SINK GROUP */
public class Years {
    static Map<String, Object> common;

    public static void main(String[] args) throws Exception {
        common = Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", 20000, "request.timeout.ms", 10000);
        String source = args[1], sink = args[2], group = args[3];
        try (Admin admin = Admin.create(common)) {
            part("create", () -> {
                admin.createTopics(List.of(new NewTopic(source, 1, (short) 1), new NewTopic(sink, 1, (short) 1))).all().get();
                return described(admin, source) && admin.listTopics().names().get().containsAll(List.of(source, sink));
            });
            part("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().size() > 0);
            part("produce", () -> {
                try (KafkaProducer<String, String> producer = producer(Map.of())) {
                    for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(source, "k" + i, "v" + i)).get();
                }
                return true;
            });
            part("transaction", () -> copy(source, sink, group));
            part("groups", () -> {
                boolean listed = admin.listConsumerGroups().all().get().stream().anyMatch(it -> it.groupId().equals(group));
                long offset = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                    .get(new TopicPartition(source, 0)).offset();
                return listed && offset == 10 && admin.describeConsumerGroups(List.of(group)).all().get().containsKey(group);
            });
        }
    }

    static void part(String name, Callable<Boolean> what) {
        try {
            System.out.println(name + ": " + (what.call() ? "ok" : "wrong"));
        } catch (Throwable error) {
            System.out.println(name + ": " + error);
        }
    }

    /** `all` became `allTopicNames` in 3.1. */
    static boolean described(Admin admin, String topic) throws Exception {
        Object found = admin.describeTopics(List.of(topic));
        String name = Arrays.stream(found.getClass().getMethods()).anyMatch(it -> it.getName().equals("allTopicNames"))
            ? "allTopicNames" : "all";
        Object all = ((KafkaFuture<?>) found.getClass().getMethod(name).invoke(found)).get();
        return ((Map<?, ?>) all).containsKey(topic);
    }

    static boolean copy(String source, String sink, String group) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(Map.of("group.id", group, "isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "enable.auto.commit", false));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer = producer(Map.of("transactional.id", group, "max.block.ms", 20000))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(sink, "k", "aborted"));
            producer.flush();
            producer.abortTransaction();
            consumer.subscribe(List.of(source));
            long deadline = System.nanoTime() + 30_000_000_000L;
            for (int copied = 0; copied < 10 && System.nanoTime() < deadline; ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                long next = 0;
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(sink, record.key(), record.value().toUpperCase()));
                    next = record.offset() + 1;
                }
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition(source, 0), new OffsetAndMetadata(next)), consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.count();
                if (copied == 10) return true;
            }
            return false;
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
