import java.io.*;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.*;

/**
 * Kafka's transactional producer, told what to do line by line: ADDRESS and a transactional id are its arguments, a line is
 * "commit" or "abort" and behind tabs the records, each a topic, a partition and a value. It answers each with
 * "written", "aborted", "before EXCEPTION" or "ending EXCEPTION", and ends after an exception and with its input.
 */
public class Transactions {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "transactional.id", args[1], "transaction.timeout.ms", 10_000,
            "request.timeout.ms", 5_000, "delivery.timeout.ms", 10_000, "max.block.ms", 15_000,
            "reconnect.backoff.max.ms", 200);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        String answer = "ready";
        try {
            producer.initTransactions();
        } catch (KafkaException error) {
            answer = "before " + error.getClass().getName();
        }
        while (true) {
            System.out.println(answer);
            String line = answer.startsWith("before") || answer.startsWith("ending") ? null : lines.readLine();
            if (line == null) Runtime.getRuntime().halt(0);
            answer = store(producer, line.split("\t"));
        }
    }

    static String store(KafkaProducer<String, String> producer, String[] fields) {
        String when = "before";
        try {
            producer.beginTransaction();
            for (int i = 1; i < fields.length; i += 3)
                producer.send(new ProducerRecord<>(fields[i], Integer.valueOf(fields[i + 1]), null, fields[i + 2]));
            if (fields[0].equals("abort")) {
                producer.abortTransaction();
                return "aborted";
            }
            when = "ending";
            producer.commitTransaction();
            return "written";
        } catch (KafkaException error) {
            return when + " " + error.getClass().getName();
        }
    }
}
