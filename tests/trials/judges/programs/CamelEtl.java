import org.apache.camel.Exchange;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.main.Main;
import org.apache.camel.support.SynchronizationAdapter;

/** Consume, process, produce with two routes of Camel, until SIGTERM: CamelEtl BOOTSTRAP INPUT OUTPUT GROUP NAME
 *  [transacted]. At least once, for a transaction of Camel has no offsets. */
public class CamelEtl {
    public static void main(String[] args) throws Exception {
        String bytes = "org.apache.kafka.common.serialization.ByteArray";
        String from = "kafka:" + args[1] + "?brokers=" + args[0] + "&groupId=" + args[3]
            + "&autoOffsetReset=earliest&sessionTimeoutMs=6000&isolationLevel=read_committed"
            + "&autoCommitEnable=false&allowManualCommit=true&breakOnFirstError=true"
            + "&keyDeserializer=" + bytes + "Deserializer&valueDeserializer=" + bytes + "Deserializer";
        String to = "kafka:" + args[2] + "?brokers=" + args[0]
            + "&keySerializer=" + bytes + "Serializer&valueSerializer=" + bytes + "Serializer"
            + (args.length > 5 ? "&transacted=true&transactionalId=" + args[4] + "-" : "&clientId=");
        var main = new Main();
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                for (int it = 0; it < 2; it++) {
                    from(from + "&clientId=consumer-" + it).process(CamelEtl::commitAtTheEnd).to(to + it);
                }
            }
        });
        main.run();
    }

    /** Camel ends its transaction when the exchange is done, after the route's last step. What was added first is
     *  called last, and also after a transaction that failed. What it throws would be ignored. */
    private static void commitAtTheEnd(Exchange exchange) {
        var offset = exchange.getMessage().getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class);
        exchange.getExchangeExtension().addOnCompletion(new SynchronizationAdapter() {
            @Override
            public void onDone(Exchange done) {
                try {
                    if (!done.isFailed()) {
                        offset.commit();
                    }
                } catch (RuntimeException error) {
                    done.setException(error);
                }
            }
        });
    }
}
