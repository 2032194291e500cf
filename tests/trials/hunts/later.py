"""Kills processes that deliver scheduled records, and processors whose handlers postpone theirs or fail.

    python -m tests.trials.hunts.later [--kills 40] [--seed 1] [--face NAME,…]

For each face two processes at once work on one file: a copy of `process`, and a second copy or a program
that only delivers. Each is killed with SIGKILL at its next visit of a failpoint (the first of one life, the
second of the next, and so on), or before at a random instant. The table has the points. The clock jumps by
hours, forward and back, while they live, and between their lives the group's offsets are rewritten. At the
end the file stays closed for a week of the clock. Then each record must have one result (and one row), none
made before its time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import eosdb
import eosdb.aio
from eosdb import BatchFailed, BrokerConfig, ConsumerRecord, ProducerRecord, RetryAt
from eosdb.client.processor.failure import read_failure
from eosdb.errors import NonEmptyGroupError
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.records.failure_headers import postponed_topic

CONFIG: Final = BrokerConfig(log_retention_ms=-1)
"""Unread records outlive the week, as they would a shorter pause."""
ONCE_MORE: Final[Any] = {"to_current": True, "execute": True}
FACES: Final = ("plain", "workers", "rows", "batch", "batch-rows", "aio")
GROUP: Final = "g"
_HOUR_MS: Final = 3_600_000
_WEEK_MS: Final = 7 * 24 * _HOUR_MS
_LIFE_S: Final = 2.0
_VISITS: Final = 120


class Jumping:
    """A clock that all processes share and one of them sets: the machine's, plus a number of ms."""

    def __init__(self) -> None:
        self._cells = mmap.mmap(-1, 16)
        """What is added, and the highest time that was ever shown before a jump."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._read()[0]

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1_000)

    def sleep_ms(self, ms: int) -> None:
        time.sleep(max(ms, 0) / 1_000)

    def jump(self, ms: int) -> None:
        added, highest = self._read()
        struct.pack_into("qq", self._cells, 0, added + ms, max(highest, self.time_ms()))

    def highest_ms(self) -> int:
        return max(self._read()[1], self.time_ms())

    def _read(self) -> tuple[int, int]:
        added, highest = struct.unpack_from("qq", self._cells, 0)
        return int(added), int(highest)


class Handlers:
    """Handlers that postpone a record now and then, and otherwise return it with what is to be judged."""

    def __init__(self, clock: Jumping, seed: int, may_postpone: bool) -> None:
        self._clock, self._rng, self._may_postpone = clock, random.Random(seed), may_postpone

    def one(self, record: ConsumerRecord) -> ProducerRecord:
        failure, now = read_failure(record.headers), self._clock.time_ms()
        if self._may_postpone and self._rng.random() < (0.6 if failure is None else 0.3):
            if self._rng.random() < 0.3:
                raise ValueError("later")
            raise RetryAt(now + self._rng.randrange(60))
        sent_due = int(dict(record.headers)["due"] or b"")
        due = max([] if failure is None else [failure.due_ms], default=0)
        is_early = record.timestamp < sent_due or self._clock.highest_ms() < due
        place = f"{record.topic}/{record.partition}/{record.offset}"
        return ProducerRecord(
            value=record.value, headers=[("early", b"%d" % is_early), ("from", place.encode())]
        )

    def rows(self, record: ConsumerRecord, tx: eosdb.UserTransaction) -> ProducerRecord:
        tx.connection.exec_driver_sql("INSERT INTO done VALUES (?)", (record.value.decode(),))
        return self.one(record)

    def batch(self, records: list[ConsumerRecord]) -> list[ProducerRecord]:
        results = []
        for index, record in enumerate(records):
            try:
                results.append(self.one(record))
            except (RetryAt, ValueError) as again:
                raise (BatchFailed(index, again) if self._rng.random() < 0.7 else again) from None
        return results

    def batch_rows(
        self, records: list[ConsumerRecord], tx: eosdb.UserTransaction
    ) -> list[ProducerRecord]:
        for record in records:
            tx.connection.exec_driver_sql("INSERT INTO done VALUES (?)", (record.value.decode(),))
        return self.batch(records)

    async def awaited(self, record: ConsumerRecord) -> ProducerRecord:
        await asyncio.sleep(0)
        return self.one(record)


class Round:
    """One file, and what lives on it."""

    def __init__(self, folder: Path, face: str, seed: int) -> None:
        self.path, self.face, self.rng = (
            folder / f"{face}.db",
            face,
            random.Random(f"{face} {seed}"),
        )
        self.clock = Jumping()
        self.sent = 0
        self.postponed = 0
        self.killed: Counter[str] = Counter()
        """The kills at each point."""
        self._visits = cycle(range(1, _VISITS))
        self._point = mmap.mmap(-1, 64)
        """Where the last process was that died at a point."""

    def run(self, kills: int) -> list[str]:
        """Returns what is wrong."""
        with self._connected() as db:
            for topic in ("in", "out"):
                db.admin.create_topic(topic, partitions=2)
            db.admin.create_topic("noise")
            with db.begin() as tx:
                tx.connection.exec_driver_sql("CREATE TABLE done (value TEXT)")
        while self.killed.total() < kills:
            self._feed()
            other = self.rng.choice((self._process, self._deliver))
            self._strike(
                {self._child(self._process): "a processor", self._child(other): other.__name__}
            )
        self.clock.jump(self.clock.highest_ms() - self.clock.time_ms() + _WEEK_MS)
        self._process(may_postpone=False, until_idle_ms=300)
        return self._problems()

    def _feed(self) -> None:
        with self._connected() as db, db.producer() as producer:
            for way in range(6):
                due = self.clock.time_ms() + self.rng.randrange(80)
                of_record: Any = {"headers": [("due", b"%d" % due)], "deliver_at": due}
                key = self.rng.choice(("a", "b", None))
                if way % 2:
                    producer.send("in", f"{self.sent}", key=key, **of_record)
                else:
                    with db.begin() as tx:
                        tx.publish("in", f"{self.sent}", key=key, **of_record)
                self.sent += 1
        with self._connected() as db, contextlib.suppress(NonEmptyGroupError):
            db.admin.reset_offsets(GROUP, list(db.broker.offset_fetch(GROUP)), **ONCE_MORE)

    def _strike(self, children: dict[int, str]) -> None:
        """Wait until both have died. The clock jumps meanwhile."""
        end = time.monotonic() + self.rng.random() * _LIFE_S
        left = dict(children)
        while left:
            if self.rng.random() < 0.2:
                self.clock.jump(self.rng.choice((-3, -1, 1, 4)) * _HOUR_MS)
            for pid in list(left):
                is_late = time.monotonic() > end
                if is_late:
                    os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0 if is_late else os.WNOHANG)
                if ended:
                    if not os.WIFSIGNALED(status):
                        raise RuntimeError(f"{self.face}: {left[pid]} ended with {status}")
                    place = self._point[:].rstrip(b"\0").decode()
                    self.killed["at an instant" if is_late else place] += 1
                    del left[pid]
            time.sleep(0.02)

    def _child(self, life: Callable[[], object]) -> int:
        """Fork a process that lives this life, and dies at a point."""
        visits, seed = next(self._visits), self.rng.random()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            self.rng.seed(seed)
            count = 0

            def reached(point: Failpoint) -> None:
                nonlocal count
                count += 1
                if count == visits:
                    self._point[:] = point.value.encode().ljust(64, b"\0")
                    os.kill(os.getpid(), signal.SIGKILL)

            with watched(reached):
                life()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _process(self, *, may_postpone: bool = True, until_idle_ms: int | None = None) -> None:
        handlers = Handlers(self.clock, self.rng.randrange(2**31), may_postpone)
        settings: Any = {"group_id": GROUP, "transaction_size": 4, "until_idle_ms": until_idle_ms}
        settings["consumer"] = {"session_timeout_ms": 6_000}
        settings |= {"max_attempts": 1, "retry_delays_ms": (20,) * 90, "dead_letter_topic": "dlq"}
        if self.face == "aio":
            asyncio.run(self._process_awaiting(handlers, settings))
            return
        name = {"workers": "one", "plain": "one", "batch-rows": "batch_rows"}.get(
            self.face, self.face
        )
        settings["workers"] = 3 if self.face == "workers" else 1
        settings["batch"] = self.face.startswith("batch")
        with self._connected() as db:
            eosdb.process(db, "in", getattr(handlers, name), "out", **settings)

    async def _process_awaiting(self, handlers: Handlers, settings: dict[str, Any]) -> None:
        # An event loop takes no clock; its database asks this function.
        with patch("time.time", lambda: self.clock.time_ms() / 1_000):
            async with eosdb.aio.connect(self.path, config=CONFIG) as db:
                await db.process("in", handlers.awaited, "out", **settings)

    def _deliver(self) -> None:
        """Write, and so deliver what is due."""
        with self._connected() as db:
            while True:
                db.producer().send("noise", b"n").result()
                time.sleep(self.rng.random() / 50)

    def _connected(self) -> eosdb.Database:
        return eosdb.connect(self.path, clock=self.clock, config=CONFIG)

    def _problems(self) -> list[str]:
        with self._connected() as db:
            results = Counter[str]()
            origins, problems = set[bytes](), list[str]()
            reader = db.consumer(auto_offset_reset="earliest")
            reader.subscribe("out")
            while records := reader.poll(0):
                for record in records:
                    results[record.value.decode()] += 1
                    headers = dict(record.headers)
                    origins.add(headers["from"] or b"")
                    if headers["early"] != b"0":
                        problems.append(f"{record.value!r} came before its time")
            in_group = (
                f"SELECT count(*) FROM committed_records WHERE topic = '{postponed_topic(GROUP)}'"
            )
            ((self.postponed,),) = db.query(in_group).rows
            rows = Counter(value for (value,) in db.query("SELECT value FROM done").rows)
            expected = Counter(str(number) for number in range(self.sent))
            if results != expected:
                problems.append(f"lost {expected - results}, doubled {results - expected}")
            if self.face.endswith("rows") and rows != expected:
                problems.append(f"rows: lost {expected - rows}, doubled {rows - expected}")
            if len(origins) != self.sent or any(not each.startswith(b"in/") for each in origins):
                problems.append("a handler saw another place than the original one")
            if waiting := db.admin.list_scheduled():
                problems.append(f"{len(waiting)} records wait still")
            if not (found := db.verify()).ok:
                problems.append(f"verify: {found}")
        return [f"{self.face}: {each}" for each in problems]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=40, help="of each face")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--face", default=",".join(FACES))
    given = parser.parse_args(arguments)
    problems: list[str] = []
    for face in given.face.split(","):
        with tempfile.TemporaryDirectory() as folder:
            began, one = time.monotonic(), Round(Path(folder), face, given.seed)
            found = one.run(given.kills)
            problems += found
            print(
                f"{face}: {one.killed.total()} kills, {one.sent} records, postponed {one.postponed} "
                f"times, {len(found)} problems, {time.monotonic() - began:.0f} s: "
                + ", ".join(f"{place} {times}" for place, times in one.killed.most_common()),
                flush=True,
            )
    print("\n".join(problems) or "none lost, doubled or early")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
