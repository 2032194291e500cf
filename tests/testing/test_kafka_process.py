"""The cluster of a suite whose environment cannot have the extra `serve`: another environment serves it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import pytest

from eosdb import ConfigError
from eosdb.testing import KafkaProcess
from tests.testing.clients import COMMITS, TOPIC, confluent_consumer, read

pytestmark = [pytest.mark.process, pytest.mark.slow]

COMMAND = shlex.join([sys.executable, "-m", "eosdb.cli"])


def committed(address: str) -> list[str]:
    COMMITS["confluent-kafka"](address, ["1", "2"])
    consumer = confluent_consumer(address)
    consumer.subscribe([TOPIC])
    try:
        return read(consumer, 2)
    finally:
        consumer.close()


def test_the_fixtures_take_the_command_of_the_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOSDB_KAFKA_COMMAND", COMMAND)
    cluster = request.getfixturevalue("eosdb_kafka")
    assert isinstance(cluster, KafkaProcess)
    assert committed(cluster) == ["1", "2"]
    assert cluster == cluster.bootstrap_servers == cluster.get_bootstrap_server()
    with pytest.raises(AttributeError, match="lose_request: this cluster runs in another process"):
        cluster.lose_request("produce")
    make: Callable[..., KafkaProcess] = request.getfixturevalue("eosdb_kafka_factory")
    with make(num_partitions=3, time_passes=True) as other:
        COMMITS["confluent-kafka"](other, ["1"])
        metadata = confluent_consumer(other).list_topics(TOPIC)
        assert len(metadata.topics[TOPIC].partitions) == 3
    other.close()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/no/such/eosdb", "cannot be started"),
        (f"{COMMAND} --nothing", "No such option '--nothing'"),
    ],
)
def test_a_command_that_serves_nothing_is_told(command: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)EOSDB_KAFKA_COMMAND: .*{told}"):
        KafkaProcess(command)


def test_an_environment_without_the_extra_is_told_of_the_command(
    eosdb_kafka_factory: Callable[..., KafkaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*args: object, **settings: object) -> None:
        raise ConfigError("the server needs the extra 'serve'")

    monkeypatch.setattr("eosdb.testing.KafkaDouble", without)
    with pytest.raises(ConfigError) as refused:
        eosdb_kafka_factory()
    assert "EOSDB_KAFKA_COMMAND" in refused.value.__notes__[0]
