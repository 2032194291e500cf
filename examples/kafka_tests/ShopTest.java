/** A test of Java's Kafka client: it starts a cluster in memory, which ends with this process. */
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ShopTest {
    public static void main(String[] args) throws Exception {
        Process kafka = new ProcessBuilder("eosdb", "serve", "--memory", "--print-address")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String address = kafka.inputReader().readLine();

        Map<String, Object> settings = Map.of("bootstrap.servers", address, "transactional.id", "shop");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("payments", "order 42", "paid"));
            producer.commitTransaction();
        }
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", address, "group.id", "test",
            "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("payments"));
            var records = consumer.poll(java.time.Duration.ofSeconds(60));
            records.forEach(record -> System.out.println(record.key() + ": " + record.value()));
        }
        kafka.destroy();
    }
}
