"""What the fixture `eosdb_kafka` gives a test as a system under test: time passes when a check waits."""

from __future__ import annotations

import tempfile
from pathlib import Path

from eosdb.testing import KafkaDouble
from tests.conformance.through_confluent import ThroughConfluent


class EosdbKafka(ThroughConfluent):
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._cluster = KafkaDouble(Path(self._folder.name) / "kafka.db", num_partitions=2)
        super().__init__()

    def start(self) -> str:
        self._cluster.restart()
        return str(self._cluster)

    def end(self) -> None:
        self._cluster.kill()

    def clean_up(self) -> None:
        self._cluster.close()
        self._folder.cleanup()

    def wait(self, ms: int) -> None:
        self._cluster.clock.advance(ms)
