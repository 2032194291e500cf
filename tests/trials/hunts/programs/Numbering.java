import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/**
 * Kafka Streams, exactly_once_v2: copies a topic, partition by partition, and numbers each partition's records by a
 * store. Its arguments: ADDRESS, the application's id, a folder for its state, the topic and that of the copy.
 */
public class Numbering implements Processor<byte[], byte[], Integer, String> {
    private ProcessorContext<Integer, String> context;
    private KeyValueStore<Integer, Long> counts;

    @Override
    public void init(ProcessorContext<Integer, String> context) {
        this.context = context;
        counts = context.getStateStore("counts");
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        int partition = context.recordMetadata().get().partition();
        Long before = counts.get(partition);
        long number = before == null ? 0 : before;
        counts.put(partition, number + 1);
        String value = record.value() == null ? "" : new String(record.value()).stripTrailing();
        context.forward(new Record<>(partition, number + " " + value, record.timestamp()));
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", args[0], "application.id", args[1], "state.dir", args[2],
            "processing.guarantee", "exactly_once_v2", "replication.factor", "1", "num.stream.threads", "1",
            "main.consumer.group.instance.id", args[1], "session.timeout.ms", "6000"));
        settings.putAll(Map.of(
            "producer.transaction.timeout.ms", "6000", "request.timeout.ms", "5000", "producer.delivery.timeout.ms", "5500",
            "task.timeout.ms", "30000", "reconnect.backoff.max.ms", "200", "producer.max.block.ms", "6000"));
        StoreBuilder<KeyValueStore<Integer, Long>> store = Stores.keyValueStoreBuilder(
            Stores.inMemoryKeyValueStore("counts"), Serdes.Integer(), Serdes.Long());
        Topology topology = new Topology();
        topology.addSource("in", new ByteArrayDeserializer(), new ByteArrayDeserializer(), args[3]);
        topology.addProcessor("numbering", Numbering::new, "in").addStateStore(store, "numbering");
        topology.addSink("out", args[4], new IntegerSerializer(), new StringSerializer(),
            (topic, key, value, count) -> Optional.of(Set.of(key)), "numbering");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println("another thread after " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            Runtime.getRuntime().halt(0);
        }));
        streams.start();
    }
}
