import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.*;

/** Kafka's Java clients against one broker: topics, transactions, a group, fencing. Prints what it found.
    java RoundTrip.java BOOTSTRAP [GROUP_PROTOCOL] */
public class RoundTrip {
    static String protocol = "classic";

    public static void main(String[] args) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", args[0]);
        if (args.length > 1) protocol = args[1];
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic("in", 2, (short) 1), new NewTopic("out", 1, (short) 1))).all().get();
            System.out.println("topics " + new TreeSet<>(admin.listTopics().names().get()));
            transactions(common);
            copy(common);
            System.out.println("out " + values(common, "out"));
            System.out.println("in " + values(common, "in"));
            Uuid id = admin.describeTopics(List.of("in")).allTopicNames().get().get("in").topicId();
            System.out.println("by its id " + admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                .allTopicIds().get().get(id).name());
            fencing(common);
            System.out.println("offsets " + new TreeMap<>(admin.listConsumerGroupOffsets("copiers")
                .partitionsToOffsetAndMetadata().get().entrySet().stream()
                .collect(Collectors.toMap(it -> it.getKey().toString(), it -> it.getValue().offset()))));
            System.out.println("group " + admin.describeConsumerGroups(List.of("copiers")).all().get().get("copiers").groupState());
            admin.deleteTopics(List.of("in")).all().get();
            System.out.println("topics " + new TreeSet<>(admin.listTopics().names().get()));
        }
    }

    /** Ten records committed, ten aborted. */
    static void transactions(Map<String, Object> common) {
        try (KafkaProducer<String, String> producer = producer(common, "maker")) {
            producer.initTransactions();
            for (String word : List.of("committed", "aborted")) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>("in", i % 2, "k" + i, word + i));
                if (word.equals("aborted")) producer.abortTransaction(); else producer.commitTransaction();
            }
        }
    }

    /** Consume, process and produce in a group, exactly once. */
    static void copy(Map<String, Object> common) {
        try (KafkaConsumer<String, String> consumer = consumer(common, "copiers");
             KafkaProducer<String, String> producer = producer(common, "copier")) {
            producer.initTransactions();
            consumer.subscribe(List.of("in"));
            for (int copied = 0; copied < 10; ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>("out", record.key(), record.value().toUpperCase()));
                    next.put(new TopicPartition("in", record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.count();
            }
        }
    }

    /** The second producer of a transactional id ends the first one. */
    static void fencing(Map<String, Object> common) {
        try (KafkaProducer<String, String> zombie = producer(common, "one");
             KafkaProducer<String, String> successor = producer(common, "one")) {
            zombie.initTransactions();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>("out", "k", "of a zombie"));
            zombie.flush();
            successor.initTransactions();
            zombie.commitTransaction();
        } catch (ProducerFencedException error) {
            System.out.println("fenced " + values(common, "out").contains("of a zombie"));
        }
    }

    static SortedSet<String> values(Map<String, Object> common, String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(common, "reader-" + UUID.randomUUID())) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream().map(it -> new TopicPartition(topic, it.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            SortedSet<String> found = new TreeSet<>();
            while (all.stream().anyMatch(it -> consumer.position(it) < ends.get(it)))
                consumer.poll(Duration.ofSeconds(1)).forEach(it -> found.add(it.value()));
            return found;
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> common, String id) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("transactional.id", id);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> common, String group) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.putAll(Map.of("group.id", group, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "group.protocol", protocol));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
