"""The shop: everybody who works on its file, each at its own pace."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time_ns
from typing import Any, Final

import eosdb
from eosdb import (
    BrokerConfig,
    Consumer,
    OffsetAndMetadata,
    Producer,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.broker.outbox import UserTransaction
from tests.trials.hunts.years.calendar import DAY_MS, HOUR_MS, MINUTE_MS, Calendar
from tests.trials.hunts.years.ledger import Ledger

_PARTITIONS: Final = 3
_SEQUENCES: Final = 2**31
_CLICKS_BYTES: Final = 40_000
_TOPICS: Final[dict[str, tuple[int, dict[str, object]]]] = {
    "orders": (_PARTITIONS, {}),
    "audit": (1, {"retention.ms": 30 * DAY_MS}),
    "invoices": (_PARTITIONS, {}),
    "clicks": (1, {"retention.ms": -1, "retention.bytes": _CLICKS_BYTES}),
    "meters": (1, {"retention.ms": 2 * DAY_MS}),
    "payments": (1, {}),
    "bank": (2, {}),
    "work": (1, {"retention.ms": -1}),
    "prices": (1, {"cleanup.policy": "compact", "delete.retention.ms": DAY_MS}),
}
OWN_TABLE: Final = "stock"
_LINE: Final = " " * 60
"""What an order says besides its number."""
_PRODUCTS: Final = 200
_STARTS: Final = 5
"""So often a program that fails at once is started in a row."""


class Shop:
    """Everybody who works on the file, in one thread: who is due when, what they do, what it costs."""

    def __init__(self, path: Path, calendar: Calendar, interval_ms: int, seed: int) -> None:
        self.path: Final = path
        # Kafka's defaults, but for what would only be repeated: rounds of housekeeping, and heartbeats of a
        # member that is always there.
        self.config: Final = BrokerConfig(
            log_retention_check_interval_ms=interval_ms, group_max_session_timeout_ms=DAY_MS
        )
        self.calendar: Final = calendar
        self.ledger: Final = Ledger(interval_ms)
        self.cost_ns: Final = Counter[str]()
        self.count: Final = Counter[str]()
        self._random = random.Random(seed)
        self._orders = self._serial = 0
        self._till_ids: set[int] = set()
        self._nervous_ids: set[int] = set()
        self._meter: tuple[eosdb.ProducerIdAndEpoch, int] | None = None
        self._payments: list[str] = []
        self._lost: list[Producer | Consumer] = []
        self._own_rows: set[int] = set()
        now_ms = calendar.monotonic_ms()
        self._due: dict[Callable[[], None], tuple[int, int]] = {
            work: (now_ms, every_ms)
            for work, every_ms in (
                (self._show, 2 * HOUR_MS),
                (self._begin_again, 3 * MINUTE_MS),
                (self._measure, HOUR_MS),
                (self._price, 2 * HOUR_MS),
                (self._click, 2 * HOUR_MS),
                (self._pay, 2 * HOUR_MS),
                (self._job, 3 * HOUR_MS),
                (self._process, 12 * HOUR_MS),
                (self._work, 12 * HOUR_MS),
                (self._import, DAY_MS),
                (self._lose_a_producer, DAY_MS),
                (self._screen, DAY_MS),
                (self._account, 3 * DAY_MS),
                (self._lose_a_member, 3 * DAY_MS),
                (self._visit, 10 * DAY_MS),
                (self._season, 30 * DAY_MS),
            )
        }
        self.open()
        for name, (partitions, config) in _TOPICS.items():
            self.db.admin.create_topic(name, partitions, config)
        with self.db.begin() as tx:
            tx.connection.exec_driver_sql(f"CREATE TABLE {OWN_TABLE} (number INTEGER PRIMARY KEY)")
        self._join()

    # -- the file -------------------------------------------------------------------------------

    def open(self) -> None:
        with self._costs("open"):
            self.db = eosdb.connect(
                self.path, clock=self.calendar, durability="normal", config=self.config
            )
        self._till = self.db.producer(transactional_id="till")
        self._till.init_transactions()
        self._display: Consumer[bytes, bytes] | None = None

    def _join(self) -> None:
        self._display = self.db.consumer(
            "display",
            auto_offset_reset="earliest",
            session_timeout_ms=12 * HOUR_MS,
            max_poll_interval_ms=DAY_MS,
            partition_assignment_strategy="cooperative-sticky",
        )
        self._display.subscribe(["orders"])

    def reopen(self, *, orderly: bool) -> None:
        """Close the file, or leave it as a killed program does, and open it again."""
        if orderly:
            assert self._display is not None
            self._display.close()
            self._till.close()
            self.db.close()
        else:
            self.db.abandon()
        self._lost.clear()
        self.open()
        self._join()

    @contextmanager
    def _costs(self, what: str, count: int = 1) -> Iterator[None]:
        begin_ns = process_time_ns()
        yield
        self.cost_ns[what] += process_time_ns() - begin_ns
        self.count[what] += count

    def work(self) -> None:
        """Let everybody work whose time has come."""
        now_ms = self.calendar.monotonic_ms()
        for work, (due_ms, every_ms) in self._due.items():
            if due_ms <= now_ms:
                self._due[work] = (now_ms + every_ms, every_ms)
                work()

    # -- who writes -----------------------------------------------------------------------------

    def order(self) -> None:
        """One transaction of the till; some go to two topics, some are aborted."""
        self._orders += 1
        number, kind = self._orders, self._random.random()
        value = f"{number} {_LINE}".encode()
        with self._costs("send"):
            token = self._till.begin_transaction()
            sent = [self._till.send("orders", value, key=str(number % 997))]
            if kind < 0.05:
                sent.append(self._till.send("audit", value))
            if kind > 0.97:
                self._till.flush()
                self._till.abort_transaction()
            else:
                self._till.commit_transaction()
        self._till_ids.add(token.producer_id)
        self.ledger.done["transactions"] += 1
        if kind <= 0.97:
            self.ledger.unbilled.add(number)
            self._own_rows.add(number)
            for future in sent:
                self.ledger.note(future.result(), value)

    def _value(self, what: str) -> bytes:
        self._serial += 1
        return f"{what} {self._serial}".encode()

    def _begin_again(self) -> None:
        """A program that is started again and again: each time takes an epoch."""
        for _ in range(_STARTS):
            given = self.db.broker.init_producer_id("nervous")
            self._nervous_ids.add(given.producer_id)
            self.ledger.done["epochs taken"] += 1
        self.ledger.ids["nervous"] = self.calendar.time_ms()

    def _measure(self) -> None:
        """An idempotent producer whose sequences pass the last one, once a month; some batches twice."""
        tp = TopicPartition("meters", 0)
        if self._meter is None:
            self._meter = self.db.broker.init_producer_id(), _SEQUENCES - 40
        producer, sequence = self._meter
        values = [self._value("meter") for _ in range(3)]
        batch = RecordBatch([Record(value=value) for value in values], *producer, sequence)
        first = self.db.broker.append(tp, batch)
        if self._random.random() < 0.2:
            again = self.db.broker.append(tp, batch)
            if not again.duplicate or again.base_offset != first.base_offset:
                self.ledger.blame(f"meters: sequence {sequence} was stored twice")
            self.ledger.done["batches repeated"] += 1
        timestamp = self.calendar.time_ms()
        for place, value in enumerate(values):
            at = eosdb.RecordMetadata("meters", 0, first.base_offset + place, timestamp)
            self.ledger.note(at, value)
        self._meter = producer, (sequence + 3) % _SEQUENCES
        if sequence + 3 >= _SEQUENCES:
            self.ledger.done["sequences wrapped"] += 1
        elif 200 < sequence < _SEQUENCES - 40:
            self._meter = None

    def _price(self) -> None:
        """The compacted topic: values, tombstones, and what is taken back."""
        with self.db.producer(transactional_id="prices") as producer:
            producer.init_transactions()
            for is_aborted in (False, True, False):
                producer.begin_transaction()
                said = {
                    f"p{self._random.randrange(_PRODUCTS)}".encode(): (
                        None if self._random.random() < 0.2 else self._value("price")
                    )
                    for _ in range(5)
                }
                for key, value in said.items():
                    producer.send("prices", value, key=key)
                producer.flush()
                if is_aborted:
                    producer.abort_transaction()
                    continue
                producer.commit_transaction()
                for key, value in said.items():
                    if value is None:
                        self.ledger.prices.pop(key, None)
                    else:
                        self.ledger.prices[key] = value
        self.ledger.ids["prices"] = self.calendar.time_ms()

    def _click(self) -> None:
        """An idempotent producer for one record."""
        value = self._value("click") + b" " * 300
        with self.db.producer() as producer:
            self.ledger.note(producer.send("clicks", value).result(), value)

    def _pay(self) -> None:
        """Under a key; the one before is asked for once more."""
        self._payments.append(f"payment-{len(self._payments)}")
        for name in self._payments[-2:]:
            value = name.encode()
            with self.db.begin() as tx:
                at = tx.publish("payments", value, idempotency_key=name)
            if at.duplicate != (name in self.ledger.keys):
                self.ledger.blame(f"{name}: duplicate={at.duplicate}, and it should not be")
            if not at.duplicate:
                self.ledger.keys[name] = self.calendar.time_ms()
                self.ledger.note(at, value)

    def _job(self) -> None:
        """A program with an id that is never used again."""
        name, value = self._value("job").decode(), self._value("audited")
        with self.db.producer(transactional_id=name) as producer:
            producer.init_transactions()
            with producer.transaction():
                sent = producer.send("audit", value)
        self.ledger.ids[name] = self.calendar.time_ms()
        self.ledger.note(sent.result(), value)

    def _work(self) -> None:
        """A topic that is kept for ever, and whose reader deletes what it has read."""
        with self.db.producer(transactional_id="work") as producer:
            producer.init_transactions()
            for is_aborted in (True, False, True, False):
                producer.begin_transaction()
                producer.send("work", self._value("work")).result()
                if is_aborted:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        self.db.broker.delete_records(TopicPartition("work", 0), -1)
        self.ledger.ids["work"] = self.calendar.time_ms()

    def _import(self) -> None:
        """A batch a day, sent twice; and a sink that is used for one day."""
        day = self.calendar.today().toordinal()
        for sink in ("import", f"import of {day}"):
            values = {tp: self._value(sink) for tp in (TopicPartition("bank", p) for p in (0, 1))}
            for is_repeated in (False, True):
                batches = {tp: [Record(value=value)] for tp, value in values.items()}
                result = self.db.append_once(sink, day, batches)
                if result.skipped is not is_repeated:
                    self.ledger.blame(f"{sink}: batch {day} was skipped={result.skipped}")
                for tp, first in result.offsets.items():
                    at = eosdb.RecordMetadata(*tp, first, self.calendar.time_ms())
                    self.ledger.note(at, values[tp])
            self.ledger.sinks[sink] = self.calendar.time_ms()

    def _lose_a_producer(self) -> None:
        """Its transaction stays open, until its time is over."""
        producer = self.db.producer(transactional_id=self._value("lost").decode())
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("audit", b"nobody should read this").result()
        self._lost.append(producer)

    def _season(self) -> None:
        """A topic that is deleted and made anew under the same name, and one that has its own."""
        month = self.calendar.today().strftime("campaign-%Y-%m-%d")
        for name in self.db.admin.list_topics():
            if name == "season" or name.startswith("campaign"):
                self.db.admin.delete_topic(name)
                for tp in [tp for tp in self.ledger.logs if tp.topic == name]:
                    del self.ledger.logs[tp]
        for name in ("season", month):
            self.db.admin.create_topic(name, 2)
            for partition in (0, 1):
                value = self._value(name)
                at = self.db.producer().send(name, value, partition=partition).result()
                self.ledger.note(at, value)
        with self.db.consumer("season", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["season"])
            read = _all(consumer)
            consumer.commit()
        if len(read) != 2:
            self.ledger.blame(f"season: read {len(read)} of 2 records of a topic made anew")
        self.ledger.groups["season"] = self.calendar.time_ms()

    # -- who reads ------------------------------------------------------------------------------

    def _show(self) -> None:
        """A consumer that is always there."""
        assert self._display is not None
        before = process_time_ns()
        records = _all(self._display)
        if records:
            self.cost_ns["poll"] += process_time_ns() - before
            self.count["poll"] += len(records)
            self._display.commit()

    def _lose_a_member(self) -> None:
        """Of the display's group; it never comes back."""
        consumer = self.db.consumer(
            "display",
            session_timeout_ms=10 * MINUTE_MS,
            partition_assignment_strategy="cooperative-sticky",
        )
        consumer.subscribe(["orders"])
        self._lost.append(consumer)

    def _process(self) -> None:
        """Invoices, and rows of our own, exactly once."""
        eosdb.process(
            self.db, "orders", _invoice, "invoices", group_id="billing", until_idle_ms=1
        )  # fmt: skip
        eosdb.process(self.db, "orders", _book, group_id="stock", until_idle_ms=1)

    def _account(self) -> None:
        """Lags by three days; every order must have one invoice, and one row."""
        self._process()
        with self.db.consumer("accounts", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["invoices"])
            for record in _all(consumer):
                number = int(record.value.split()[1])
                if number in self.ledger.unbilled:
                    self.ledger.unbilled.remove(number)
                    self.ledger.done["invoices seen"] += 1
                else:
                    self.ledger.blame(f"invoice {number} came twice, or without an order")
            consumer.commit()
        if self.ledger.unbilled:
            self.ledger.blame(f"{len(self.ledger.unbilled)} orders have no invoice")
            self.ledger.unbilled.clear()
        rows = {number for (number,) in self.db.query(f"SELECT number FROM {OWN_TABLE}").all()}
        if rows != self._own_rows:
            self.ledger.blame(f"{len(rows ^ self._own_rows)} rows differ from the orders")
        self._own_rows.clear()
        with self.db.begin() as tx:
            tx.connection.exec_driver_sql(f"DELETE FROM {OWN_TABLE}")

    def _screen(self) -> None:
        """A member of the new group protocol; one in five dies."""
        beat = self.db.broker.consumer_group_heartbeat
        me = beat(
            "screen", rebalance_timeout_ms=MINUTE_MS, subscribed_topic_names=["payments"],
            topic_partitions={},
        )  # fmt: skip
        tp = TopicPartition("payments", 0)
        read = {tp: OffsetAndMetadata(self.db.broker.offsets(tp).last_stable_offset)}
        self.db.broker.offset_commit(
            "screen", read, generation_id=me.member_epoch, member_id=me.member_id
        )
        if self._random.random() >= 0.2:
            beat("screen", member_id=me.member_id, member_epoch=-1)

    def _visit(self) -> None:
        """Comes every ten days: its offsets are no longer there."""
        if known := self.db.broker.offset_fetch("visitor"):
            self.ledger.blame(f"the visitor's offsets are there after ten days: {known}")
        with self.db.consumer("visitor", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["payments"])
            consumer.poll(0)
            consumer.commit()
        self.ledger.groups["visitor"] = self.calendar.time_ms()

    def rotations(self) -> dict[str, int]:
        """How many producer ids the two busy transactional ids have had."""
        return {"till": len(self._till_ids), "nervous": len(self._nervous_ids)}


def _all(consumer: Consumer[Any, Any]) -> list[eosdb.ConsumerRecord[Any, Any]]:
    """What there is to read."""
    found: list[eosdb.ConsumerRecord[Any, Any]] = []
    while records := consumer.poll(0, max_records=5_000):
        found += records
    return found


def _invoice(record: eosdb.ConsumerRecord[bytes, bytes]) -> bytes:
    return b"invoice " + record.value.split()[0]


def _book(record: eosdb.ConsumerRecord[bytes, bytes], tx: UserTransaction) -> None:
    number = int(record.value.split()[0])
    tx.connection.exec_driver_sql(f"INSERT INTO {OWN_TABLE} VALUES (?)", (number,))
