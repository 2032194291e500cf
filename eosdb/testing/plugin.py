"""The pytest plugin: a fresh database on a clock that the test advances, faulty networks to it, and a Kafka
cluster for real clients.

Installed with eosdb; nothing needs to be imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eosdb import Database, ManualClock
    from eosdb.testing import FaultyTransport, KafkaDouble, KafkaProcess

START_MS = 1_700_000_000_000


@pytest.fixture
def eosdb_clock() -> ManualClock:
    """A clock that stands still at 2023-11-14 22:13:20 UTC until the test calls `advance(ms)`. A test that
    also takes `eosdb_kafka` has this one clock for both, which that fixture sets to the machine's time."""
    from eosdb import ManualClock

    return ManualClock(START_MS)


@pytest.fixture
def eosdb_db(tmp_path: Path, eosdb_clock: ManualClock) -> Iterator[Database]:
    """An empty database in a temporary file, on `eosdb_clock`."""
    import eosdb

    with eosdb.connect(tmp_path / "eosdb.db", clock=eosdb_clock, durability="off") as db:
        yield db


@pytest.fixture
def eosdb_faults(eosdb_db: Database) -> Callable[..., FaultyTransport]:
    """A factory of faulty networks to `eosdb_db`: `db.producer(transport=eosdb_faults(seed=1,
    lose_request=0.2))`."""
    from eosdb.testing import FaultyTransport

    def make(seed: int = 0, **faults: Any) -> FaultyTransport:
        return FaultyTransport(eosdb_db.broker, seed, **faults)

    return make


@pytest.fixture
def eosdb_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eosdb_clock: ManualClock
) -> Iterator[KafkaDouble | KafkaProcess]:
    """A Kafka cluster in this process, for any client. Its value is the `bootstrap.servers`, which are in
    the environment variable KAFKA_BOOTSTRAP_SERVERS, too, during the test.

    Its clock, `eosdb_clock`, stands still until the test advances it. If the environment has
    EOSDB_KAFKA_COMMAND, such as `/opt/eosdb/bin/eosdb`, that command serves the cluster from another
    environment, and a test has only its address.
    """
    with _cluster(tmp_path / "kafka.db", clock=eosdb_clock) as cluster:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", cluster)
        yield cluster


@pytest.fixture(scope="session")
def eosdb_kafka_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., KafkaDouble | KafkaProcess]]:
    """A factory of Kafka clusters: `eosdb_kafka_factory(num_partitions=4, time_passes=True)`.

    Each cluster is a context manager, for a test or a module; the session's end closes open ones.
    """
    with ExitStack() as stack:

        def make(**settings: Any) -> KafkaDouble | KafkaProcess:
            path = tmp_path_factory.mktemp("eosdb_kafka") / "kafka.db"
            cluster = _cluster(path, **settings)
            stack.enter_context(cluster)
            return cluster

        yield make


def _cluster(
    path: Path, *, clock: ManualClock | None = None, time_passes: bool = False, **config: Any
) -> KafkaDouble | KafkaProcess:
    from eosdb.errors import ConfigError
    from eosdb.testing import KafkaDouble, KafkaProcess

    if command := os.environ.get("EOSDB_KAFKA_COMMAND"):
        return KafkaProcess(command, **config)
    try:
        return KafkaDouble(path, clock=clock, time_passes=time_passes, **config)
    except ConfigError as error:
        error.add_note(
            "EOSDB_KAFKA_COMMAND may name an eosdb in another environment (docs/testing.md)"
        )
        raise
