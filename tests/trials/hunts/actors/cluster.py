"""The cluster of relays and moves: `eosdb serve` with a file of its own, or a broker of this machine.

EOSDB_BENCH_KAFKA=HOST:PORT names a broker, to which the proxy connects; its topic `shop` is deleted. With
EOSDB_BENCH_KAFKA_RUN, a command that runs it in the foreground and ends with status 0 by SIGTERM, it is
killed and stopped, too.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.trials.hunts.actors.actor import Need
from tests.trials.hunts.programs.working import PARTITIONS, TOPIC
from tests.trials.hunts.world import World

BROKER: Final = os.environ.get("EOSDB_BENCH_KAFKA")
_RUN: Final = os.environ.get("EOSDB_BENCH_KAFKA_RUN")
_SERVER: Final = frozenset({Need.SERVER} if BROKER is None or _RUN else ())
HAS: Final = frozenset({Need.OWN_FILE, Need.LONG_LIFE, Need.CONNECTION}) | _SERVER
FILE_OF: Final = "server" if BROKER is None else "client"
"""The role of the process that has a file of eosdb's open."""
CANNOT: Final[Mapping[str, str]] = MappingProxyType(
    {}
    if BROKER is None
    else dict.fromkeys(("no-thread", "no-inotify"), "the broker is not a process of eosdb's")
)
_PATIENCE_S: Final = 5.0


def begin(world: World, file: Path) -> None:
    """Serve the file, or connect to the broker."""
    if BROKER is None:
        world.serve("--create", file=file)
        return
    world.stand_before(int(BROKER.rpartition(":")[2]), shlex.split(_RUN) if _RUN else None)
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": world.address})
    if TOPIC in client.list_topics(timeout=_PATIENCE_S).topics:
        client.delete_topics([TOPIC])[TOPIC].result()
        world.until(
            lambda: TOPIC not in client.list_topics(timeout=_PATIENCE_S).topics, "it is deleted"
        )


def end_offsets(address: str) -> int:
    """The sum of the topic's ends at the broker; 0 while it cannot be asked."""
    import confluent_kafka as kafka

    settings = {"bootstrap.servers": address, "group.id": "judge", "log_level": 0}
    consumer, ends = kafka.Consumer(settings), 0
    with suppress(kafka.KafkaException):
        for partition in range(PARTITIONS):
            place = kafka.TopicPartition(TOPIC, partition)
            _, end = consumer.get_watermark_offsets(place, timeout=_PATIENCE_S, cached=False)
            ends += end
    consumer.close()
    return ends
