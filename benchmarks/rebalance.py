"""What a rebalance stops: librdkafka's consumers in a group while a member comes and another goes, by the
classic protocol (eager and cooperative) and the consumer protocol (KIP-848), before `eosdb serve` and real
brokers in turns.

    python -m benchmarks.rebalance [--brokers HOST:PORT,…] [--members 3,10,50] [--rounds 2]

Every partition gets a record each 50 ms, or `--interval-ms`. A partition stands still from one record's
arrival to the next; the figures are of the longest such time of each partition in the ten seconds after the
change, and of how many records came in the worst second of it, as a share of those that were sent.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.trials.judges.serving import Server

PROTOCOLS: Final[dict[str, dict[str, str]]] = {
    "classic, range": {"partition.assignment.strategy": "range"},
    "classic, cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
WINDOW_S: Final = 10.0
READY_S: Final = 120.0


class Stop(NamedTuple):
    """What a change of the group stopped."""

    median_s: float
    longest_s: float
    standing: int
    """Partitions that stood still for more than half a second."""
    worst_second: float


class Member:
    """A consumer in a thread of its own; `arrived` gets the time of each record by its partition."""

    def __init__(
        self, settings: dict[str, Any], topic: str, arrived: list[tuple[float, int]]
    ) -> None:
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._arrived = arrived
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                partition = message.partition()
                assert partition is not None
                self._arrived.append((time.monotonic(), partition))
        self._consumer.close()

    def end(self) -> None:
        self._ends.set()

    def join(self) -> None:
        self._thread.join()


def measure(
    bootstrap: str, protocol: str, members: int, rounds: int, interval_s: float
) -> dict[str, list[Stop]]:
    """A member comes into a group of so many, and one goes, again and again."""
    topic, partitions = f"rebalance-{uuid.uuid4()}", 2 * members
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(READY_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    settings |= PROTOCOLS[protocol]
    arrived: list[tuple[float, int]] = []
    stops: dict[str, list[Stop]] = {"a member comes": [], "a member goes": []}
    group: list[Member] = []
    ending: list[Member] = []
    with _writing(bootstrap, topic, partitions, interval_s):
        try:
            group += [Member(settings, topic, arrived) for _ in range(members)]
            _wait_until_all_flow(arrived, partitions)
            for _ in range(rounds):
                for change, found in stops.items():
                    began = time.monotonic()
                    if change == "a member comes":
                        group.append(Member(settings, topic, arrived))
                    else:
                        ending.append(group.pop(0))
                        ending[-1].end()
                    time.sleep(WINDOW_S)
                    found.append(_stop(arrived, began, partitions, interval_s))
        finally:
            for member in group:
                member.end()
            for member in [*group, *ending]:
                member.join()
    admin.delete_topics([topic])[topic].result(READY_S)
    return stops


@contextmanager
def _writing(bootstrap: str, topic: str, partitions: int, interval_s: float) -> Iterator[None]:
    ends = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def write() -> None:
        due = time.monotonic()
        while not ends.is_set():
            for index in range(partitions):
                producer.produce(topic, b"x", partition=index)
            producer.poll(0)
            due += interval_s
            ends.wait(max(0.0, due - time.monotonic()))
        producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _wait_until_all_flow(arrived: list[tuple[float, int]], partitions: int) -> None:
    """Until every partition has had a record in each of the last three seconds."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = time.monotonic()
        recent = [(int(now - at), index) for at, index in arrived if now - at < 3]
        if len(set(recent)) == 3 * partitions:
            return
    raise TimeoutError("the group does not read every partition")


def _stop(
    arrived: list[tuple[float, int]], began: float, partitions: int, interval_s: float
) -> Stop:
    times = defaultdict(list)
    for at, index in list(arrived):
        if began - 1 <= at < began + WINDOW_S:
            times[index].append(at)
    longest = [
        max(b - a for a, b in zip([began, *its], [*its, began + WINDOW_S], strict=True))
        for its in ([at for at in times[index] if at >= began] for index in range(partitions))
    ]
    seconds = [0] * int(WINDOW_S)
    for its in times.values():
        for at in its:
            if at >= began:
                seconds[int(at - began)] += 1
    return Stop(
        statistics.median(longest),
        max(longest),
        sum(one > 0.5 for one in longest),
        min(seconds) * interval_s / partitions,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", default="", help="real brokers, HOST:PORT with commas between")
    parser.add_argument("--members", default="3,10,50")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--interval-ms", type=int, default=50)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(Server(folder / "x.db", folder / "log"))
        brokers = {"eosdb": server.bootstrap, **{it: it for it in given.brokers.split(",") if it}}
        print(
            "| broker | members | protocol | change | median, longest stop | > 0.5 s | worst second |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for members in map(int, given.members.split(",")):
            for protocol in PROTOCOLS:
                for name, bootstrap in brokers.items():
                    measured = measure(
                        bootstrap, protocol, members, given.rounds, given.interval_ms / 1_000
                    )
                    for change, stops in measured.items():
                        medians = statistics.median(stop.median_s for stop in stops)
                        standing = sum(stop.standing for stop in stops)
                        print(
                            f"| {name} | {members} | {protocol} | {change} | {medians:.2f} s, "
                            f"{max(stop.longest_s for stop in stops):.2f} s | "
                            f"{standing / len(stops):.1f} of {2 * members} | "
                            f"{min(stop.worst_second for stop in stops):.0%} |",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
