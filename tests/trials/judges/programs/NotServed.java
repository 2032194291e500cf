import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What Java's clients say of share groups and of two-phase commit before a broker that has neither. */
public class NotServed {
    private interface Step {
        Object run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> broker = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(broker)) {
            say("list", () -> admin.listGroups(ListGroupsOptions.forShareGroups()).all().get());
            say("describe", () -> admin.describeShareGroups(List.of("g")).all().get());
        }
        Map<String, Object> member = Map.of("bootstrap.servers", args[0], "group.id", "g");
        try (var consumer = new KafkaShareConsumer<>(member, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("t"));
            say("poll", () -> {
                while (true) {
                    consumer.poll(Duration.ofSeconds(1));
                }
            });
        }
        Map<String, Object> prepares = Map.of("bootstrap.servers", args[0], "transactional.id", "p", "transaction.two.phase.commit.enable", true);
        try (var producer = new KafkaProducer<>(prepares, new StringSerializer(), new StringSerializer())) {
            say("prepare", () -> {
                producer.initTransactions();
                return "an ordinary transaction";
            });
        }
    }

    private static void say(String what, Step step) {
        try {
            System.out.println(what + ": " + step.run());
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println(what + ": " + cause.getClass().getSimpleName());
        }
    }
}
