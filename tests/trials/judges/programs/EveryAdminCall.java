import java.lang.reflect.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringSerializer;

/** Each method of the Java admin client, called once; prints what came of it: a value, or the error's class. */
@SuppressWarnings("removal")
public class EveryAdminCall {
    static final TopicPartition TP = new TopicPartition("t", 0);
    static final Set<String> CALLED = new TreeSet<>();

    interface Call {
        Object make() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", 30_000);
        try (Admin real = Admin.create(settings)) {
            Admin admin = (Admin) Proxy.newProxyInstance(Admin.class.getClassLoader(), new Class<?>[] {Admin.class}, (proxy, method, given) -> {
                CALLED.add(method.getName());
                try {
                    return method.invoke(real, given);
                } catch (InvocationTargetException error) {
                    throw error.getCause();
                }
            });
            topics(admin);
            write(args[0]);
            configs(admin);
            groups(admin);
            placement(admin);
            transactions(admin);
            rights(admin);
            cluster(admin);
            otherGroups(admin);
            call("deleteTopics", () -> admin.deleteTopics(List.of("t")).all().get());
        }
        Set<String> others = Stream.of(Admin.class.getMethods()).filter(it -> !Modifier.isStatic(it.getModifiers()))
            .map(Method::getName).collect(Collectors.toCollection(TreeSet::new));
        others.removeAll(CALLED);
        System.out.println("not called: " + others);
        Runtime.getRuntime().halt(0);
    }

    static void topics(Admin admin) {
        call("createTopics", () -> admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get());
        call("listTopics", () -> admin.listTopics().names().get());
        call("describeTopics", () -> admin.describeTopics(List.of("t")).allTopicNames().get().get("t").partitions().size());
        call("createPartitions", () -> admin.createPartitions(Map.of("t", NewPartitions.increaseTo(2))).all().get());
    }

    /** A transaction that is open, of one record behind a committed one. */
    static void write(String bootstrap) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", "open");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("t", 0, "k", "committed")).get();
        producer.commitTransaction();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("t", 0, "k", "open")).get();
    }

    static void configs(Admin admin) {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "t");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "g");
        call("describeConfigs", () -> admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value());
        call("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(set("retention.ms", "7")))).all().get());
        call("incrementalAlterConfigs of a broker", () -> admin.incrementalAlterConfigs(Map.of(broker, List.of(set("log.cleaner.threads", "2")))).all().get());
        call("incrementalAlterConfigs of a group", () -> admin.incrementalAlterConfigs(Map.of(group, List.of(set("consumer.session.timeout.ms", "50000")))).all().get());
        call("listConfigResources", () -> admin.listConfigResources().all().get().stream()
            .map(it -> it.type() + " " + it.name()).filter(it -> !it.contains("__")).sorted().toList());
        call("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static void groups(Admin admin) {
        Map<TopicPartition, OffsetAndMetadata> offset = Map.of(TP, new OffsetAndMetadata(1));
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("g", offset).all().get());
        call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata().get().get(TP).offset());
        call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("g")).all().get().get("g").groupState());
        call("describeClassicGroups", () -> admin.describeClassicGroups(List.of("g")).all().get().get("g").state());
        call("listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).toList());
        call("listGroups", () -> admin.listGroups().all().get().stream().map(it -> it.groupId() + " " + it.type().get()).toList());
        call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("g",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get());
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("g", Set.of(TP)).all().get());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("g")).all().get());
    }

    static void placement(Admin admin) {
        TopicPartitionReplica replica = new TopicPartitionReplica("t", 0, 1);
        call("listOffsets", () -> admin.listOffsets(Map.of(TP, OffsetSpec.latest())).all().get().get(TP).offset());
        call("deleteRecords", () -> admin.deleteRecords(Map.of(TP, RecordsToDelete.beforeOffset(1))).all().get());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(TP)).partitions().get().get(TP).get().getClass().getSimpleName());
        call("electLeaders of all", () -> admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(TP, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        call("alterPartitionReassignments to none", () -> admin.alterPartitionReassignments(Map.of(TP, Optional.of(new NewPartitionReassignment(List.of(2))))).all().get());
        call("alterPartitionReassignments cancelled", () -> admin.alterPartitionReassignments(Map.of(TP, Optional.empty())).all().get());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size());
        call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaOffsetLag());
        call("alterReplicaLogDirs", () -> {
            String folder = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).keySet().iterator().next();
            return admin.alterReplicaLogDirs(Map.of(replica, folder)).all().get();
        });
        call("alterReplicaLogDirs elsewhere", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
    }

    static void transactions(Admin admin) {
        call("listTransactions", () -> admin.listTransactions().all().get().stream().map(it -> it.transactionalId() + " " + it.state()).toList());
        call("describeTransactions", () -> admin.describeTransactions(List.of("open")).description("open").get().topicPartitions());
        call("describeProducers", () -> admin.describeProducers(List.of(TP)).partitionResult(TP).get().activeProducers().size());
        call("abortTransaction", () -> {
            ProducerState it = admin.describeProducers(List.of(TP)).partitionResult(TP).get().activeProducers().get(0);
            return admin.abortTransaction(new AbortTransactionSpec(TP, it.producerId(), (short) it.producerEpoch(), it.coordinatorEpoch().orElse(0))).all().get();
        });
        call("fenceProducers", () -> admin.fenceProducers(List.of("open")).all().get());
        call("forceTerminateTransaction", () -> admin.forceTerminateTransaction("open").result().get());
    }

    static void rights(Admin admin) {
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        call("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get().size());
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get());
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get().keySet());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        ClientQuotaEntity alice = new ClientQuotaEntity(Map.of("user", "alice"));
        for (Double rate : Arrays.asList(1000.0, null))
            call("alterClientQuotas to " + rate, () -> admin.alterClientQuotas(List.of(
                new ClientQuotaAlteration(alice, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", rate))))).all().get());
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[1]).expiryTimestamp().get());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[1]).expiryTimestamp().get());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
    }

    static void cluster(Admin admin) {
        call("describeCluster", () -> admin.describeCluster().nodes().get().stream().map(Node::id).toList());
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version"));
        call("updateFeatures to what they are", () -> admin.updateFeatures(
            Map.of("transaction.version", new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        call("updateFeatures to what there is not", () -> admin.updateFeatures(
            Map.of("transaction.version", new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().stream().map(QuorumInfo.ReplicaState::replicaId).toList());
        call("unregisterBroker", () -> admin.unregisterBroker(9).all().get());
        call("unregisterController", () -> admin.unregisterController(9).all().get());
        call("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.ONE_UUID, Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9))).all().get());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.ONE_UUID).all().get());
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(10)).equals(Uuid.ZERO_UUID));
        call("metrics", () -> !admin.metrics().isEmpty());
    }

    /** Of the kinds of groups that only newer brokers have. */
    static void otherGroups(Admin admin) {
        Map<TopicPartition, OffsetAndMetadata> offset = Map.of(TP, new OffsetAndMetadata(0));
        call("describeShareGroups", () -> admin.describeShareGroups(List.of("s")).all().get());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("s", new ListShareGroupOffsetsSpec())).all().get());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("s", Map.of(TP, 0L)).all().get());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("s", Set.of("t")).all().get());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("s")).all().get());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("s")).all().get());
        call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of("s", new ListStreamsGroupOffsetsSpec())).partitionsToOffsetAndMetadata("s").get());
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("s", offset).all().get());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("s", Set.of(TP)).all().get());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("s")).all().get());
    }

    static void call(String name, Call call) {
        String outcome;
        try {
            outcome = String.valueOf(call.make());
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
            System.err.println(name + ": " + cause);
            outcome = cause.getClass().getSimpleName();
        }
        System.out.println(name + ": " + outcome);
    }
}
