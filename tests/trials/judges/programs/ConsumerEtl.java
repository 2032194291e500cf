import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Consume, process, produce with Java's clients, exactly once, until it is killed.
    java ConsumerEtl.java BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID PROTOCOL */
public class ConsumerEtl {
    public static void main(String[] args) {
        while (true) {
            try {
                copy(args[0], args[1], args[2], args[3], args[4], args[5]);
            } catch (KafkaException error) { // Fenced, or not to be gone on with: begin anew.
                System.out.println("anew after " + error);
            }
        }
    }

    static void copy(String bootstrap, String source, String sink, String group, String id, String protocol) {
        Map<String, Object> reading = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "group.protocol", protocol, "isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "max.poll.records", 100);
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap, "transactional.id", id);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                records.forEach(it -> producer.send(new ProducerRecord<>(sink, it.key(), it.value())));
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
            }
        }
    }
}
