"""The double of a Kafka cluster: real clients work on it, and the test decides about time and faults."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest

import eosdb
from eosdb import CoordinatorLoadInProgressError, TransactionToken
from eosdb.errors import ApiError, ConfigError
from eosdb.testing import KafkaDouble
from eosdb.testing.kafka_errors import CODES, error_of
from tests.programs import ended
from tests.testing.clients import (
    API_VERSIONS,
    COMMITS,
    PATIENCE_S,
    TOPIC,
    ask_without_reading,
    confluent_consumer,
    confluent_transactions,
    read,
    stored,
)
from tests.waiting import eventually
from tests.wire import every_api
from tests.wire.peer import Address, Peer
from tests.wire.test_every_right import codes

pytestmark = [pytest.mark.process, pytest.mark.slow]

Commit = Callable[[KafkaDouble, Iterable[str]], None]
every_client = pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)


@every_client
@pytest.mark.parametrize("api", ["end_txn", "produce", "init_producer_id"])
def test_a_lost_answer_doubles_nothing(eosdb_kafka: KafkaDouble, commit: Commit, api: str) -> None:
    eosdb_kafka.lose_response(api)
    commit(eosdb_kafka, ["1", "2"])
    assert eosdb_kafka.counts["lose_response"] == 1
    assert stored(eosdb_kafka) == ["1", "2"]
    assert eosdb_kafka.db.verify().ok


@every_client
@pytest.mark.parametrize("api", ["end_txn", "produce"])
def test_a_lost_request_loses_nothing(eosdb_kafka: KafkaDouble, commit: Commit, api: str) -> None:
    eosdb_kafka.lose_request(api)
    commit(eosdb_kafka, ["1", "2"])
    assert eosdb_kafka.counts["lose_request"] == 1
    assert stored(eosdb_kafka) == ["1", "2"]


@every_client
def test_clients_ask_again_where_the_error_says_so(
    eosdb_kafka: KafkaDouble, commit: Commit
) -> None:
    eosdb_kafka.answer("end_txn", CoordinatorLoadInProgressError, times=2)
    commit(eosdb_kafka, ["1"])
    assert eosdb_kafka.counts["answer"] == 2
    asked = [line for line in eosdb_kafka.history if line.startswith("end_txn")]
    assert [line.endswith(": answer") for line in asked] == [True, True, False]
    assert stored(eosdb_kafka) == ["1"]


def test_a_delayed_request_is_carried_out_later(eosdb_kafka: KafkaDouble) -> None:
    producer = confluent_transactions(eosdb_kafka)
    producer.begin_transaction()
    producer.produce(TOPIC, "late")
    producer.flush(PATIENCE_S)
    eosdb_kafka.delay("end_txn", 300)
    begun = time.monotonic()
    producer.commit_transaction(PATIENCE_S)
    assert time.monotonic() - begun >= 0.3
    assert stored(eosdb_kafka) == ["late"]


def test_each_request_meets_one_fault_in_the_order_of_asking(eosdb_kafka: KafkaDouble) -> None:
    eosdb_kafka.lose_request("produce")
    eosdb_kafka.lose_response("produce", times=2)
    COMMITS["confluent-kafka"](eosdb_kafka, ["1"])
    met = [line.split(": ")[1] for line in eosdb_kafka.history if ": " in line]
    assert met == ["lose_request", "lose_response", "lose_response"]
    assert stored(eosdb_kafka) == ["1"]


def test_a_request_that_is_not_served_is_named(eosdb_kafka: KafkaDouble) -> None:
    for api in ("EndTxn", "end_tnx"):
        with pytest.raises(
            ConfigError,
            match=rf"got '{api}' \(did you mean 'end_txn'\?\), expected one of .*end_txn",
        ):
            eosdb_kafka.lose_response(api)


def test_an_answer_that_is_no_error_of_kafkas_is_refused_when_it_is_planned(
    eosdb_kafka: KafkaDouble,
) -> None:
    with pytest.raises(
        ConfigError, match=r"got 'NOT_LEADER' \(did you mean 'NOT_LEADER_OR_FOLLOWER'\?\)"
    ):
        eosdb_kafka.answer("produce", "NOT_LEADER")
    for error in (eosdb.ConfigError, eosdb.RequestTimedOutError("an object"), 0, 134, True, 6.0):
        with pytest.raises(ConfigError, match=r"error: got .*, expected a class such as"):
            eosdb_kafka.answer("produce", cast("type[ApiError]", error))


def test_the_names_and_numbers_of_errors_are_kafkas() -> None:
    """kafka-python has old names for some, and ends before the newest."""
    assert {*CODES.values()} == {-1, *range(1, 134)}
    for error in vars(eosdb.errors).values():
        if isinstance(error, type) and issubclass(error, ApiError):
            assert CODES[error.name] == error.code
            assert error_of(error.code).name == error.name
    assert error_of(6).name == "NOT_LEADER_OR_FOLLOWER"


NOWHERE = {"Metadata of all topics", "DescribeTopicPartitions of all topics"}
"""An answer of these versions has no place for an error, so the connection ends."""


def test_every_api_answers_with_every_error(tmp_path: Path) -> None:
    """Also with those that eosdb itself never sends, and that the coordinator would translate."""
    with KafkaDouble(tmp_path / "kafka.db") as cluster:
        who = every_api.prepare(cluster.db)
        host, port = cluster.split(":")
        errors: list[tuple[Any, int]] = [
            (6, 6),
            ("KAFKA_STORAGE_ERROR", 56),
            (eosdb.RequestTimedOutError, 7),
        ]
        for row, (error, code) in itertools.product(every_api.TABLE, errors):
            cluster.answer(re.sub(r"\B(?=[A-Z])", "_", row.name.split()[0]).lower(), error)
            with (
                Peer(Address(host, int(port))) as peer,
                pytest.raises(ConnectionError) if row.name in NOWHERE else contextlib.nullcontext(),
            ):
                answered = codes(peer.ask(row.make(who), row.version))
                assert {code} <= answered <= {0, code}, row.name
        assert cluster.unused == []
        assert cluster.counts["answer"] == 3 * len(every_api.TABLE)
        assert cluster.history[-1].endswith(": answer")
        assert len(cluster.history[-5:]) == 5


def test_a_client_asks_again_at_an_error_that_eosdb_itself_never_sends(
    eosdb_kafka: KafkaDouble,
) -> None:
    eosdb_kafka.answer("produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    eosdb_kafka.answer("find_coordinator", 15)
    COMMITS["confluent-kafka"](eosdb_kafka, ["1"])
    assert eosdb_kafka.counts["answer"] == 3
    assert stored(eosdb_kafka) == ["1"]


def test_faults_that_no_request_met_are_told_at_the_end(tmp_path: Path) -> None:
    cluster = KafkaDouble(tmp_path / "kafka.db")
    cluster.lose_response("end_txn")
    cluster.answer("produce", 6, times=2)
    assert cluster.unused == ["end_txn: lose_response", "produce: answer", "produce: answer"]
    with pytest.warns(UserWarning, match="no request met these planned faults: end_txn: lose_resp"):
        cluster.close()
    cluster.close()


def test_a_transaction_times_out_when_the_clock_is_advanced(eosdb_kafka: KafkaDouble) -> None:
    producer = confluent_transactions(eosdb_kafka, transaction_timeout_ms=60_000)
    producer.begin_transaction()
    producer.produce(TOPIC, "forgotten")
    producer.flush(PATIENCE_S)
    plain = confluent_kafka.Producer({"bootstrap.servers": eosdb_kafka})
    plain.produce(TOPIC, "after")
    plain.flush(PATIENCE_S)
    (held,) = eosdb_kafka.why(TOPIC)
    assert held.holder is not None
    assert held.holder.transactional_id == "a"
    (worry,) = eosdb_kafka.why()
    assert worry.sentence.startswith(
        f"Transaction a has held back readers of {TOPIC}/0 from offset 0 "
    )
    assert stored(eosdb_kafka) == []

    eosdb_kafka.clock.advance(60_001)
    consumer = confluent_consumer(eosdb_kafka)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    assert read(consumer, 1) == ["after"]
    consumer.close()
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert stored(eosdb_kafka) == ["after"]
    assert eosdb_kafka.db.verify().ok


def test_a_killed_cluster_is_what_stands_still(eosdb_kafka: KafkaDouble) -> None:
    eosdb_kafka.kill()
    (worry,) = eosdb_kafka.why()
    assert (worry.sentence, worry.command) == (
        "The cluster was killed, and refuses every client.",
        "eosdb_kafka.restart()",
    )
    eosdb_kafka.restart()
    assert eosdb_kafka.why() == []


def test_the_file_says_how_a_foreign_transaction_ended(eosdb_kafka: KafkaDouble) -> None:
    COMMITS["confluent-kafka"](eosdb_kafka, ["1"])
    history = eosdb_kafka.db.query(
        "SELECT transactional_id, producer_id, producer_epoch FROM transaction_history"
        " WHERE to_state = 'CompleteCommit'"
    )
    (row,) = history.rows
    assert eosdb_kafka.db.outcome(TransactionToken(*row)) == "committed"


def test_what_was_acknowledged_is_there_after_a_kill(eosdb_kafka: KafkaDouble) -> None:
    COMMITS["confluent-kafka"](eosdb_kafka, ["before"])
    before = eosdb_kafka.db
    open_one = confluent_transactions(eosdb_kafka, transactional_id="b")
    open_one.begin_transaction()
    open_one.produce(TOPIC, "open")
    open_one.flush(PATIENCE_S)

    eosdb_kafka.kill()
    eosdb_kafka.kill()
    with pytest.raises(ConnectionRefusedError):
        connected(eosdb_kafka)
    eosdb_kafka.restart()

    assert eosdb_kafka.db is not before
    open_one.commit_transaction(PATIENCE_S)
    COMMITS["confluent-kafka"](eosdb_kafka, ["after"])
    assert stored(eosdb_kafka) == ["before", "open", "after"]
    assert eosdb_kafka.db.verify().ok


@pytest.mark.parametrize("client", COMMITS)
def test_a_client_goes_on_when_the_cluster_is_back(eosdb_kafka: KafkaDouble, client: str) -> None:
    """The commit is carried out, its answer is lost, and the server dies; the client asks the next one."""
    eosdb_kafka.db.admin.create_topic(TOPIC)
    eosdb_kafka.lose_response("end_txn")
    eosdb_kafka.delay("end_txn", 60_000)  # Which the kill cuts short.
    # In a process, which can be killed if it waits for ever.
    program = [sys.executable, "-m", "tests.testing.clients", client, eosdb_kafka, "1", "2"]
    with subprocess.Popen(program) as committing:
        try:
            eventually(lambda: eosdb_kafka.counts["delay"] == 1)
            eosdb_kafka.restart()
            assert committing.wait(PATIENCE_S) == 0
        finally:
            committing.kill()
    assert stored(eosdb_kafka) == ["1", "2"]


def test_a_server_that_dies_answers_nobody_any_more(
    eosdb_kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python 3.0.12 would ask it for its coordinator, and wait for ever for a commit when that one
    refuses the connection then: it forgets the request (`Sender._maybe_send_pending_request`)."""
    abandon = eosdb_kafka._server.abandon
    with connected(eosdb_kafka) as client:

        def ask_first() -> None:
            client.sendall(API_VERSIONS)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
            abandon()

        monkeypatch.setattr(eosdb_kafka._server, "abandon", ask_first)
        eosdb_kafka.kill()


def test_time_passes_by_itself_if_asked(eosdb_kafka_factory: Callable[..., KafkaDouble]) -> None:
    with eosdb_kafka_factory(time_passes=True) as cluster:
        begun = cluster.clock.time_ms()
        eventually(lambda: cluster.clock.time_ms() > begun)
        cluster.clock.advance(3_600_000)
        assert 3_600_000 < cluster.clock.time_ms() - begun < 2 * 3_600_000


def test_the_factory_takes_settings_of_the_broker(
    eosdb_kafka_factory: Callable[..., KafkaDouble],
) -> None:
    with eosdb_kafka_factory(num_partitions=3) as cluster:
        COMMITS["confluent-kafka"](cluster, ["1"])
        assert len(cluster.db.admin.describe_topic(TOPIC).partitions) == 3
    with eosdb_kafka_factory(auto_create_topics_enable=False) as cluster:
        client = confluent_kafka.Producer({"bootstrap.servers": cluster})
        assert client.list_topics(timeout=PATIENCE_S).topics == {}


def test_clusters_know_nothing_of_each_other(
    eosdb_kafka: KafkaDouble, eosdb_kafka_factory: Callable[..., KafkaDouble]
) -> None:
    other = eosdb_kafka_factory()
    COMMITS["confluent-kafka"](other, ["1"])
    assert eosdb_kafka != other
    assert eosdb_kafka.db.admin.list_topics() == []
    other.close()
    other.close()


def test_a_program_in_another_process_takes_the_address(eosdb_kafka: KafkaDouble) -> None:
    program = (
        "import os, confluent_kafka\n"
        "producer = confluent_kafka.Producer({'bootstrap.servers': os.environ['BOOTSTRAP']})\n"
        f"producer.produce('{TOPIC}', 'from outside')\n"
        f"raise SystemExit(producer.flush({PATIENCE_S}))\n"
    )
    environment = {**os.environ, "BOOTSTRAP": eosdb_kafka}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert stored(eosdb_kafka) == ["from outside"]


def test_the_fixture_warns_of_nothing(tmp_path: Path) -> None:
    program = tmp_path / "test_program.py"
    program.write_text("def test_program(eosdb_kafka):\n    assert eosdb_kafka\n")
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = ended([*pytest_run, str(program)], cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_it_ends_although_clients_wait_and_one_never_reads(tmp_path: Path) -> None:
    """A long poll of five minutes, a request an hour late, and a client whose answers fill all buffers."""
    cluster = KafkaDouble(tmp_path / "kafka.db")
    cluster.db.admin.create_topic(TOPIC, partitions=500)
    consumer = confluent_consumer(
        cluster, fetch_wait_max_ms=300_000, fetch_min_bytes=1_000_000, socket_timeout_ms=300_000
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    eventually(lambda: consumer.poll(0.01) is None and "fetch" in " ".join(cluster.history))
    with connected(cluster) as late, connected(cluster) as mute:
        cluster.delay("api_versions", 3_600_000)
        late.sendall(API_VERSIONS)
        eventually(lambda: cluster.counts["delay"] == 1)
        ask_without_reading(mute)
        ending = threading.Thread(target=cluster.close)
        ending.start()
        ending.join(PATIENCE_S)
        assert not ending.is_alive()
    consumer.close()
    assert cluster.path.exists()


def connected(cluster: KafkaDouble) -> socket.socket:
    host, port = cluster.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)))


def test_settings_of_containers_fit(eosdb_kafka: KafkaDouble) -> None:
    """testcontainers' method, and the variable by which programs in docker-compose find their broker."""
    assert (
        eosdb_kafka.get_bootstrap_server() == os.environ["KAFKA_BOOTSTRAP_SERVERS"] == eosdb_kafka
    )


XDIST = """
import os
import confluent_kafka
import pytest


@pytest.fixture(scope="session")
def cluster(eosdb_kafka_factory):
    with eosdb_kafka_factory(time_passes=True) as cluster:
        yield cluster


@pytest.mark.parametrize("number", range(12))
def test_a_worker_has_a_cluster_of_its_own(cluster, eosdb_kafka, number, pytestconfig):
    assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == eosdb_kafka != cluster
    worker = os.environ["PYTEST_XDIST_WORKER"]
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster})
    producer.produce("orders", worker)
    assert producer.flush(60) == 0
    orders = "SELECT DISTINCT value FROM committed_records WHERE topic = 'orders'"
    assert cluster.db.query(orders).all() == [(worker.encode(),)]
    with open(pytestconfig.rootpath / f"{worker}.{number}", "w") as file:
        file.write(cluster)
"""


def test_workers_of_xdist_share_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(XDIST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "3",
        "--dist",
        "load",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    assert "12 passed" in done.stdout, done.stdout
    addresses = {path.name.partition(".")[0]: path.read_text() for path in tmp_path.glob("gw*.*")}
    assert len(set(addresses.values())) == len(addresses) == 3


def test_the_fixtures_share_one_clock_at_the_machines_time(
    eosdb_clock: eosdb.ManualClock, eosdb_db: eosdb.Database, eosdb_kafka: KafkaDouble
) -> None:
    assert eosdb_kafka.clock is eosdb_clock is eosdb_db.clock
    assert abs(eosdb_clock.time_ms() - time.time() * 1000) < 3_600_000
    COMMITS["confluent-kafka"](eosdb_kafka, ["1"])
    eosdb_clock.advance(60_000)
    assert eosdb_kafka.clock.time_ms() == eosdb_clock.time_ms()
    assert stored(eosdb_kafka) == ["1"]
