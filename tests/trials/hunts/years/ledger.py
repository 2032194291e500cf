"""What the shop was told: each record that was acknowledged, until the file may have forgotten it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eosdb import Database, RecordMetadata, TopicPartition
from tests.trials.hunts.years.calendar import DAY_MS, HOUR_MS, Calendar

WEEK_MS: Final = 7 * DAY_MS
_COMMITTED: Final = (
    'SELECT partition, "offset", timestamp, value FROM committed_records WHERE topic = ?'
)


class Entry(NamedTuple):
    """An acknowledged record."""

    offset: int
    timestamp: int
    value: bytes


@dataclass(slots=True)
class Ledger:
    """Outside of the file; rounds of housekeeping come every `interval_ms`."""

    interval_ms: int = HOUR_MS
    logs: dict[TopicPartition, deque[Entry]] = field(default_factory=lambda: defaultdict(deque))
    unbilled: set[int] = field(default_factory=set)
    """Orders that were acknowledged, and whose invoices the accounts have not seen."""
    prices: dict[bytes, bytes] = field(default_factory=dict)
    """What the compacted topic should say."""
    ids: dict[str, int] = field(default_factory=dict)
    """Transactional ids, with the time of their last transition."""
    keys: dict[str, int] = field(default_factory=dict)
    """Idempotency keys, with the time of their use."""
    sinks: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """Groups that are empty, with the time at which they became so."""
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, at: RecordMetadata, value: bytes) -> None:
        entry = Entry(at.offset, at.timestamp, value)
        self.logs[TopicPartition(at.topic, at.partition)].append(entry)

    def blame(self, problem: str) -> None:
        self.problems.append(problem)

    @property
    def slack_ms(self) -> int:
        """By which something may be late: the next round, and an hour by which the clock was set back."""
        return self.interval_ms + 2 * HOUR_MS

    # -- against the file -----------------------------------------------------------------------

    def compare(self, db: Database, calendar: Calendar) -> None:
        """Hold all of it against the file, in which housekeeping has just been done."""
        for topic in sorted({tp.topic for tp in self.logs}):
            self._compare_topic(db, topic, calendar)
        self._compare_prices(db)
        for name, known, sql in (
            ("transactional ids", self.ids, _IDS),
            ("idempotency keys", self.keys, _KEYS),
            ("sinks", self.sinks, _SINKS),
            ("groups", self.groups, _GROUPS),
        ):
            self._compare_names(name, known, {str(row[0]) for row in db.query(sql)}, calendar)
        (left,) = db.query(_IDLE_PRODUCERS, (calendar.latest_ms - DAY_MS - self.slack_ms,)).all()[0]
        if left:
            self.blame(f"{left} producer states are older than a day")

    def _compare_topic(self, db: Database, topic: str, calendar: Calendar) -> None:
        there: dict[int, list[Entry]] = defaultdict(list)
        for partition, *entry in db.query(f'{_COMMITTED} ORDER BY partition, "offset"', (topic,)):
            there[partition].append(Entry(*entry))
        config = db.admin.describe_topic(topic).config
        keeps_ms = int(config.get("retention.ms", WEEK_MS))
        is_bounded = "retention.bytes" in config
        for tp in sorted(tp for tp in self.logs if tp.topic == topic):
            log, start = self.logs[tp], db.broker.offsets(tp).log_start_offset
            while log and log[0].offset < start:
                gone = log.popleft()
                too_early = gone.timestamp > calendar.latest_ms - keeps_ms
                if keeps_ms >= 0 and not is_bounded and too_early:
                    self.blame(f"{tp}: offset {gone.offset} was removed before its time")
            if list(log) != there[tp.partition]:
                self.blame(f"{tp}: {_difference(list(log), there[tp.partition])}")
            if keeps_ms >= 0 and log:
                age_ms = calendar.latest_ms - keeps_ms - log[0].timestamp
                if age_ms > self.slack_ms:
                    self.blame(f"{tp}: offset {log[0].offset} is still there, {age_ms} ms too long")
            self.done["records compared"] += len(log)

    def _compare_prices(self, db: Database) -> None:
        said: dict[bytes, bytes] = {}
        for key, value in db.query(_PRICES):
            if value is None:
                said.pop(key, None)
            else:
                said[key] = value
        if said != self.prices:
            differ = {*said.items()} ^ {*self.prices.items()}
            self.blame(f"prices: {len(differ)} keys or values differ, such as {sorted(differ)[:2]}")

    def _compare_names(
        self, what: str, known: dict[str, int], there: set[str], calendar: Calendar
    ) -> None:
        before_ms = calendar.latest_ms - WEEK_MS
        for name, last_ms in list(known.items()):
            if last_ms > before_ms and name not in there:
                self.blame(f"{what}: {name} is gone after {calendar.latest_ms - last_ms} ms")
            elif last_ms < before_ms - self.slack_ms:
                del known[name]
                if name in there:
                    self.blame(f"{what}: {name} is still there, used last at {last_ms}")
                self.done[f"{what} expired"] += 1


_PRICES: Final = (
    "SELECT key, value FROM committed_records WHERE topic = 'prices' ORDER BY partition, \"offset\""
)
_IDS: Final = "SELECT transactional_id FROM transactional_ids"
_KEYS: Final = "SELECT idempotency_key FROM eosdb_idempotency_keys"
_SINKS: Final = "SELECT sink_id FROM eosdb_sinks"
_GROUPS: Final = "SELECT group_id FROM group_offsets"
_IDLE_PRODUCERS: Final = (
    "SELECT count(*) FROM partition_producers "
    "WHERE current_txn_start_offset < 0 AND last_append_time < ?"
)


def _difference(told: Iterable[Entry], there: Iterable[Entry]) -> str:
    expected, found = Counter(told), Counter(there)
    return (
        f"{(expected - found).total()} acknowledged records are missing, "
        f"{(found - expected).total()} are too many: "
        f"{_some(expected - found)} against {_some(found - expected)}"
    )


def _some(entries: Mapping[Entry, int]) -> str:
    return str(sorted(entries)[:2])
