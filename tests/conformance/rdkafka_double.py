"""librdkafka's mock cluster as a system under test.

It lives inside the client that was made with `test.mock.num.brokers`; the others find it by its address.
"""

from __future__ import annotations

import confluent_kafka as ck

from tests.conformance.through_confluent import QUIET, TIMEOUT_S, ThroughConfluent


class RdkafkaMock(ThroughConfluent):
    def start(self) -> str:
        self._cluster = ck.Producer({"test.mock.num.brokers": 1, **QUIET})
        brokers = self._cluster.list_topics(timeout=TIMEOUT_S).brokers.values()
        return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def end(self) -> None:
        del self._cluster

    def clean_up(self) -> None:
        """All of it was in memory."""
