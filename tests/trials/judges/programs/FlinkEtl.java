import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Copies a topic with Flink's KafkaSource and KafkaSink, exactly once: job manager and task managers in one JVM, which goes
    on from the newest checkpoint below the folder of its last argument. */
public class FlinkEtl {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], input = args[1], output = args[2], group = args[3], name = args[4];
        Path checkpoints = Path.of(args[5]);
        var settings = new Configuration();
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "3");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        Path newest = newest(checkpoints);
        if (newest != null) {
            settings.setString("execution.state-recovery.path", newest.toUri().toString());
        }
        System.out.println("begins at " + newest);
        var environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        var source = KafkaSource.<String[]>builder()
            .setBootstrapServers(bootstrap).setTopics(input).setGroupId(group)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed").setProperty("max.poll.records", "50")
            .setDeserializer(new Pairs()).build();
        var sink = KafkaSink.<String[]>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer((KafkaRecordSerializationSchema<String[]>) (pair, context, time) ->
                new ProducerRecord<>(output, bytes(pair[0]), bytes(pair[1])))
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix(name)
            .setProperty("transaction.timeout.ms", "600000").build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
            .map(pair -> { Thread.sleep(1); return pair; }).returns(new Pairs().getProducedType())
            .sinkTo(sink);
        environment.execute(name);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Path newest(Path checkpoints) throws IOException {
        try (var files = Files.walk(checkpoints)) {
            return files.filter(it -> it.endsWith("_metadata"))
                .max(Comparator.comparing(it -> it.toFile().lastModified())).map(Path::getParent).orElse(null);
        }
    }

    public static class Pairs implements KafkaRecordDeserializationSchema<String[]> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String[]> out) {
            out.collect(new String[] {new String(record.key(), StandardCharsets.UTF_8), new String(record.value(), StandardCharsets.UTF_8)});
        }

        @Override
        public TypeInformation<String[]> getProducedType() {
            return Types.OBJECT_ARRAY(Types.STRING);
        }
    }
}
