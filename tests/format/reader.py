"""A reader of eosdb files, made from docs/internals/format.md alone, in Python's standard library.

    python reader.py FILE…

State is folded from the baseline and the events behind it. Each line of the answer is a JSON array:

    ["file", path, file id, schema]
    ["topic", name, topic id as Kafka clients see it, settings]
    ["partition", topic, partition, log start, log end, last stable offset]
    ["record", topic, partition, offset, timestamp, timestamp type, key, value, headers]   base64 or null
    ["offset", group, topic, partition, offset, metadata, lag, held back]
    ["open", transactional id, producer id, epoch, state, start, partitions]
    ["altered", table, row]   a row that does not fit its checksum
    ["wrong", invariant, where]   an invariant of the page that does not hold
"""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

EOSDB = 1701802852
SCHEMA = 1
MODULUS = 70368744177643
CHECKED = (
    "eosdb_journal", "partitions", "transaction_index", "eosdb_file", "eosdb_baseline", "group_sessions",
)  # fmt: skip
"""Tables whose rows have checksums, beside those of the baseline."""
KINDS: dict[str, str] = {
    "TopicCreated": "topic_id first_partition_id partitions config",
    "PartitionsAdded": "topic_id first_partition_id first_partition partitions",
    "TopicConfigAltered": "topic_id config",
    "TopicDeleted": "topic_id",
    "BatchAppended": "partition_id base_offset count producer_id producer_epoch base_sequence "
    "is_transactional max_timestamp max_timestamp_offset size crc",
    "MarkerWritten": "partition_id offset producer_id producer_epoch coordinator_epoch control",
    "LogCleaned": "partition_id clean_offset removed size horizons expired_horizons unindexed "
    "passed_sum removed_sum",
    "LogStartOffsetMoved": "partition_id log_start_offset size reason cleaned_sum",
    "TransactionStateChanged": "producer_id producer_epoch last_producer_epoch previous_producer_id "
    "from_state to_state timeout_ms start_time_ms partitions groups transaction_version "
    "next_producer_id",
    "OffsetsCommitted": "group_id offsets",
    "TxnOffsetsCommitted": "group_id producer_id producer_epoch offsets",
    "OffsetsDeleted": "group_id partitions reason",
}
"""The kinds that this reader folds, with the names of their values."""
OTHERS = """
ProducersExpired SnapshotTaken ProducerIdBlockAllocated CoordinatorElected TransactionalIdExpired
ProducerIdsForgotten GroupChanged GroupConfigAltered LifeBegan IdempotencyKeyUsed
IdempotencyKeysExpired RecordsScheduled ScheduledRecordsRemoved SinkBatchAppended SinksExpired ViewCreated
ViewDropped AclAdded AclRemoved ScramCredentialSet ScramCredentialRemoved
"""
DEFAULTS = {"transaction_version": 1, "next_producer_id": -1}
OF_AN_ID = {
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "previous_producer_id": "previous_producer_id",
    "to_state": "state",
    "start_time_ms": "start_time",
    "partitions": "partitions",
    "transaction_version": "transaction_version",
}
"""Values of an event, and the columns of `transactional_ids` that have them."""
STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""The names of the states, by their codes."""
AT_REST = ("Empty", "CompleteCommit", "CompleteAbort")


@dataclass
class Partition:
    topic_id: int
    topic: str
    partition: int
    start: int = 0
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """By producer: the first offset of its open transaction."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset, last offset."""

    @property
    def stable(self) -> int:
        return max(self.start, min(self.open.values())) if self.open else self.end

    def is_aborted(self, producer: int, offset: int) -> bool:
        return any(p == producer and first <= offset < last for p, first, last in self.aborted)

    def is_open(self, producer: int, offset: int) -> bool:
        return producer in self.open and self.open[producer] <= offset


Key = tuple[str, str, int]
"""Group, topic, partition."""
Committed = tuple[int, str, int]
"""Offset, metadata, position of the request."""


class Reader:
    """The state of one file, on one snapshot."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self.file.execute("PRAGMA query_only=1")
        self.file.execute("PRAGMA trusted_schema=0")
        self.file.execute("BEGIN")
        self.schema = self.identify()
        self.topics: dict[int, tuple[str, Any]] = {}
        self.partitions: dict[int, Partition] = {}
        self.ids: dict[str, dict[str, Any]] = {}
        """The values of each transactional id's newest event."""
        self.wrong: list[list[Any]] = []
        self.offsets: dict[Key, Committed] = {}
        self.pending: dict[tuple[int, *Key], Committed] = {}
        ((position,),) = self.rows("SELECT position FROM eosdb_baseline")
        self.begin_with_the_baseline()
        for event in self.rows(
            "SELECT position, kind, timestamp, topic, partition, transactional_id, detail "
            "FROM eosdb_journal WHERE position > ? ORDER BY position",
            position,
        ):
            position += 1
            if event[0] != position:
                self.wrong.append(["wrong", "positions", [event[0]]])
                position = event[0]
            self.fold(*event)

    def rows(self, sql: str, *values: object) -> Iterator[Any]:
        return iter(self.file.execute(sql, values))

    def identify(self) -> int:
        ((application_id,),) = self.rows("PRAGMA application_id")
        ((user_version,),) = self.rows("PRAGMA user_version")
        names = "('eosdb_file', 'eosdb_alembic_version')"
        if application_id != EOSDB:
            ((tables,),) = self.rows(f"SELECT count(*) FROM sqlite_master WHERE name IN {names}")
            if tables != 2:
                raise SystemExit(f"{self.path} is no eosdb file")
            ((number,),) = self.rows("SELECT version_num FROM eosdb_alembic_version")
            user_version = int(number)
        if user_version != SCHEMA:
            raise SystemExit(f"{self.path} has schema {user_version}, expected {SCHEMA}")
        return SCHEMA

    # -- state --------------------------------------------------------------------------------

    def begin_with_the_baseline(self) -> None:
        for topic_id, topic, config in self.rows(
            "SELECT topic_id, topic, config FROM eosdb_baseline_topics"
        ):
            self.topics[topic_id] = (topic, json.loads(config))
        for partition_id, *values in self.rows(
            "SELECT partition_id, topic_id, topic, partition, log_start_offset, log_end_offset "
            "FROM eosdb_baseline_partitions"
        ):
            self.partitions[partition_id] = Partition(*values)
        for partition_id, producer, first in self.rows(
            "SELECT partition_id, producer_id, current_txn_start_offset "
            "FROM eosdb_baseline_partition_producers WHERE current_txn_start_offset >= 0"
        ):
            self.partitions[partition_id].open[producer] = first
        for partition_id, *entry in self.rows(
            "SELECT partition_id, producer_id, first_offset, last_offset "
            "FROM eosdb_baseline_transaction_index"
        ):
            self.partitions[partition_id].aborted.append((entry[0], entry[1], entry[2]))
        for name, *values in self.rows(
            f"SELECT transactional_id, {', '.join(OF_AN_ID.values())} "
            "FROM eosdb_baseline_transactional_ids"
        ):
            self.ids[name] = dict(zip(OF_AN_ID, values, strict=True))
            self.ids[name]["partitions"] = json.loads(self.ids[name]["partitions"])
        for group, topic, partition, *committed in self.rows(
            "SELECT group_id, topic, partition, committed_offset, metadata, commit_position "
            "FROM eosdb_baseline_group_offsets"
        ):
            self.offsets[group, topic, partition] = (committed[0], committed[1], committed[2])
        for producer, group, topic, partition, *committed in self.rows(
            'SELECT producer_id, group_id, topic, partition, "offset", metadata, commit_position '
            "FROM eosdb_baseline_pending_group_offsets"
        ):
            key = (producer, group, topic, partition)
            self.pending[key] = (committed[0], committed[1], committed[2])

    def fold(self, position: int, kind: str, *row: Any) -> None:
        _, topic, partition, transactional_id, detail = row
        if kind not in KINDS:
            if kind not in OTHERS.split():
                self.wrong.append(["wrong", "kinds", [position]])
            return
        names, values = KINDS[kind].split(), json.loads(detail)
        if len(values) > len(names):
            self.wrong.append(["wrong", "kinds", [position]])
            return
        absent = names[len(values) :]
        members = dict(zip(names, [*values, *map(DEFAULTS.__getitem__, absent)], strict=True))
        if kind == "TransactionStateChanged":
            self.change(transactional_id, members)
        elif kind == "BatchAppended":
            log = self.partitions[members["partition_id"]]
            self.check_place(position, log, members["base_offset"])
            if members["is_transactional"]:
                log.open.setdefault(members["producer_id"], members["base_offset"])
            log.end = members["base_offset"] + members["count"]
        elif kind == "MarkerWritten":
            log = self.partitions[members["partition_id"]]
            self.check_place(position, log, members["offset"])
            first = log.open.pop(members["producer_id"], None)
            if first is not None and members["control"] == "ABORT":
                log.aborted.append((members["producer_id"], first, members["offset"]))
            log.end = members["offset"] + 1
        else:
            of_kind: Callable[..., None] = getattr(self, f"on_{kind}")
            columns = {"topic": topic, "partition": partition, "position": position}
            of_kind(**columns, **{f"m_{name}": value for name, value in members.items()})

    def check_place(self, position: int, log: Partition, first: int) -> None:
        if first != log.end:
            self.wrong.append(["wrong", "places", [position]])

    def change(self, transactional_id: str, members: dict[str, Any]) -> None:
        members = members | {"to_state": STATES[members["to_state"]]}
        self.ids[transactional_id] = members
        if members["to_state"].startswith("Complete"):
            is_second = members["transaction_version"] == 2
            producer = members["previous_producer_id" if is_second else "producer_id"]
            self.end_pending(producer, is_committed=members["to_state"] == "CompleteCommit")

    # -- offsets of groups --------------------------------------------------------------------

    def end_pending(self, producer: int, *, is_committed: bool) -> None:
        for key in [key for key in self.pending if key[0] == producer]:
            of_group, committed = key[1:], self.pending.pop(key)
            if is_committed:
                self.commit(of_group, committed)

    def commit(self, key: Key, committed: Committed) -> None:
        if key not in self.offsets or self.offsets[key][2] < committed[2]:
            self.offsets[key] = committed

    # -- the other kinds, by name; `m_…` are values of the detail ----------------------------

    def on_TopicCreated(
        self, topic: str, m_topic_id: int, m_first_partition_id: int, m_partitions: int,
        m_config: dict[str, str], **_: object,
    ) -> None:  # fmt: skip
        self.topics[m_topic_id] = (topic, m_config)
        for i in range(m_partitions):
            self.partitions[m_first_partition_id + i] = Partition(m_topic_id, topic, i)

    def on_PartitionsAdded(
        self, topic: str, m_topic_id: int, m_first_partition_id: int, m_first_partition: int,
        m_partitions: int, **_: object,
    ) -> None:  # fmt: skip
        for i in range(m_partitions):
            added = Partition(m_topic_id, topic, m_first_partition + i)
            self.partitions[m_first_partition_id + i] = added

    def on_TopicConfigAltered(
        self, topic: str, m_topic_id: int, m_config: dict[str, str], **_: object
    ) -> None:
        self.topics[m_topic_id] = (topic, m_config)

    def on_TopicDeleted(self, topic: str, m_topic_id: int, **_: object) -> None:
        del self.topics[m_topic_id]
        for partition_id in [i for i, p in self.partitions.items() if p.topic_id == m_topic_id]:
            del self.partitions[partition_id]
        for key in [key for key in self.offsets if key[1] == topic]:
            del self.offsets[key]
        for pending in [key for key in self.pending if key[2] == topic]:
            del self.pending[pending]

    def on_LogStartOffsetMoved(
        self, m_partition_id: int, m_log_start_offset: int, m_reason: str, **_: object
    ) -> None:
        log = self.partitions[m_partition_id]
        log.start = m_log_start_offset
        if m_reason != "delete_records":
            log.aborted = [entry for entry in log.aborted if entry[2] >= log.start]

    def on_LogCleaned(
        self, m_partition_id: int, m_expired_horizons: list[int], **_: object
    ) -> None:
        log = self.partitions[m_partition_id]
        log.aborted = [entry for entry in log.aborted if entry[2] not in m_expired_horizons]

    def on_OffsetsCommitted(
        self, position: int, m_group_id: str, m_offsets: list[list[Any]], **_: object
    ) -> None:
        for topic, partition, offset, _leader_epoch, metadata in m_offsets:
            self.commit((m_group_id, topic, partition), (offset, metadata, position))

    def on_TxnOffsetsCommitted(
        self, position: int, m_group_id: str, m_producer_id: int, m_offsets: list[list[Any]],
        **_: object,
    ) -> None:  # fmt: skip
        for topic, partition, offset, _leader_epoch, metadata in m_offsets:
            self.pending[m_producer_id, m_group_id, topic, partition] = (offset, metadata, position)

    def on_OffsetsDeleted(
        self, m_group_id: str, m_partitions: list[list[Any]], **_: object
    ) -> None:
        for key in [(m_group_id, topic, partition) for topic, partition in m_partitions]:
            self.offsets.pop(key, None)
            for pending in [pending for pending in self.pending if pending[1:] == key]:
                del self.pending[pending]

    # -- what it lists ------------------------------------------------------------------------

    def lines(self) -> Iterator[list[Any]]:
        ((file_id,),) = self.rows("SELECT file_id FROM eosdb_file")
        yield ["file", self.path, file_id, self.schema]
        namespace = uuid.UUID(bytes=base64.urlsafe_b64decode(file_id + "=="))
        for topic_id, (topic, config) in sorted(self.topics.items(), key=lambda item: item[1][0]):
            yield ["topic", topic, str(uuid.uuid5(namespace, str(topic_id))), config]
        logs = sorted(self.partitions.items(), key=lambda i: (i[1].topic, i[1].partition))
        logs = [(number, log) for number, log in logs if log.partition >= 0]
        for _, log in logs:
            yield ["partition", log.topic, log.partition, log.start, log.end, log.stable]
        for partition_id, log in logs:
            for offset, timestamp, of_append, key, value, headers in self.committed(
                partition_id, log
            ):
                place = [log.topic, log.partition, offset, timestamp, of_append]
                content = [text(key), text(value), headers and json.loads(headers)]
                yield ["record", *place, *content]
        by_name = {(log.topic, log.partition): item for *item, log in logs}
        for (group, topic, partition), (offset, metadata, _) in sorted(self.offsets.items()):
            lag: tuple[int | None, int | None] = (None, None)
            if (topic, partition) in by_name:
                lag = self.lag(by_name[topic, partition][0], offset)
            yield ["offset", group, topic, partition, offset, metadata, *lag]
        for name, state in sorted(self.ids.items()):
            if state["to_state"] not in AT_REST:
                who = [state["producer_id"], state["producer_epoch"], state["to_state"]]
                yield ["open", name, *who, state["start_time_ms"], state["partitions"]]
        yield from self.altered()
        yield from self.wrong
        yield from self.invariants()

    def committed(self, partition_id: int, log: Partition) -> Iterator[Any]:
        for producer, is_transactional, *row in self.rows(
            'SELECT producer_id, is_transactional, "offset", timestamp, timestamp_type, key, value, '
            'headers FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? '
            'AND control IS NULL ORDER BY "offset"',
            partition_id, log.start, log.stable,
        ):  # fmt: skip
            if not (is_transactional and log.is_aborted(producer, row[0])):
                yield row

    def lag(self, partition_id: int, offset: int) -> tuple[int, int]:
        log = self.partitions[partition_id]
        readable = sum(row[0] >= offset for row in self.committed(partition_id, log))
        held_back = 0
        for producer, is_transactional, at in self.rows(
            'SELECT producer_id, is_transactional, "offset" FROM records '
            'WHERE partition_id = ? AND "offset" >= ? AND control IS NULL',
            partition_id,
            max(log.stable, offset),
        ):
            held_back += not (is_transactional and log.is_aborted(producer, at))
        return readable, held_back

    # -- checksums ----------------------------------------------------------------------------

    def copies(self) -> list[str]:
        """The tables of the baseline."""
        names = self.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [name for (name,) in names if name.startswith("eosdb_baseline_")]

    def altered(self) -> Iterator[list[Any]]:
        for table in (*CHECKED, *self.copies()):
            columns = [name for _, name, *_ in self.rows(f"PRAGMA table_info({table})")]
            place = columns.index("checksum")
            for row in self.rows(f"SELECT * FROM {table}"):
                others = [*row[:place], *row[place + 1 :]]
                joined = "\x1f".join(map(str, others)).encode()
                if row[place] != zlib.crc32(joined):
                    yield ["altered", table, [str(value) for value in others]]
        for row in self.rows(
            'SELECT partition_id, "offset", timestamp, timestamp_type, key, value, headers, '
            "producer_id, producer_epoch, sequence, sequence_round, is_transactional, control, "
            "position, checksum FROM records"
        ):
            if row[-1] != checksum(*row[:-1]):
                yield ["altered", "records", [str(row[0]), str(row[1])]]

    # -- invariants ---------------------------------------------------------------------------

    def invariants(self) -> Iterator[list[Any]]:
        for table in ("eosdb_alembic_version", "eosdb_baseline", "eosdb_file"):
            if len([*self.rows(f"SELECT 1 FROM {table}")]) != 1:
                yield ["wrong", "one row", [table]]
        ((rows_sum,),) = self.rows("SELECT rows_sum FROM eosdb_baseline")
        total = 0
        for table in self.copies():
            weight = zlib.crc32(table.encode())
            total += sum(weight * row[0] for row in self.rows(f"SELECT checksum FROM {table}"))
        if signed(total) != rows_sum:
            yield ["wrong", "rows_sum", []]
        for log in self.rows(
            "SELECT partition_id, topic, partition, log_start_offset, log_end_offset, last_stable_offset, "
            "clean_offset, size_bytes, cleaned_sum, last_aborted_offset FROM partitions "
            "ORDER BY topic, partition"
        ):
            yield from self.of_partition(*log)
        for position, partition_id, offset in self.rows(
            'SELECT position, partition_id, "offset" FROM records r WHERE NOT EXISTS '
            "(SELECT 1 FROM eosdb_journal j WHERE j.position = r.position) ORDER BY 1, 2, 3"
        ):
            yield ["wrong", "events", [partition_id, offset, position]]

    def of_partition(
        self, partition_id: int, topic: str, partition: int, start: int, end: int, stable: int,
        clean: int, size: int, cleaned_sum: int, last_aborted: int,
    ) -> Iterator[list[Any]]:  # fmt: skip
        where = [topic, partition]
        log = self.partitions.get(partition_id)
        if log is None or (log.start, log.end, log.stable) != (start, end, stable):
            yield ["wrong", "folded", where]
        rows, found, sum_ = 0, 0, 0
        for offset, bytes_, of_record in self.rows(
            'SELECT "offset", ifnull(length(key), 0) + ifnull(length(value), 0) '
            "+ ifnull(length(CAST(headers AS BLOB)), 0), checksum "
            'FROM records WHERE partition_id = ? AND "offset" >= ?',
            partition_id,
            start,
        ):
            rows += max(start, clean) <= offset < end
            found += bytes_
            if offset < clean:
                sum_ += mixed(offset, of_record)
        if rows != max(0, end - max(start, clean)):
            yield ["wrong", "rows", where]
        if found != size:
            yield ["wrong", "size_bytes", where]
        if signed(sum_) != cleaned_sum:
            yield ["wrong", "cleaned_sum", where]
        before = None
        for last, previous in self.rows(
            "SELECT last_offset, previous_offset FROM transaction_index WHERE partition_id = ? "
            "ORDER BY last_offset",
            partition_id,
        ):
            if previous != before if before is not None else previous >= start:
                yield ["wrong", "chain", where]
            before = last
        if last_aborted != before if before is not None else last_aborted >= start:
            yield ["wrong", "chain", where]


def mixed(offset: int, of_record: int | None) -> int:
    """SplitMix64's finalizer."""
    all_bits = 2**64 - 1
    x = ((of_record or 0) + offset * 0x9E3779B97F4A7C15) & all_bits
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & all_bits
    x = (x ^ x >> 27) * 0x94D049BB133111EB & all_bits
    return x ^ x >> 31


def signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def checksum(
    partition_id: int, offset: int, timestamp: int, timestamp_type: int, key: bytes | None,
    value: bytes | None, headers: str | None, producer_id: int, producer_epoch: int, sequence: int,
    sequence_round: int, is_transactional: int, control: str | None, position: int,
) -> int:  # fmt: skip
    content = 0x155555555555
    if control is None:
        content = adler(value) + 3 * adler(key)
        content += 5 * adler(None if headers is None else headers.encode())
    given = partition_id * 1000003 + timestamp_type + remainder(producer_id, MODULUS)
    given += is_transactional + (control is None) + remainder(timestamp, MODULUS) + offset
    others = producer_epoch + sequence_round + position + sequence
    others += {None: 0, "COMMIT": 1, "ABORT": 2}[control]
    return content + given + (remainder(others, 32749) << 48)


def adler(part: bytes | None) -> int:
    return 0 if part is None else zlib.adler32(part)


def remainder(number: int, of: int) -> int:
    """With the sign of the number, as in C."""
    return number % of if number >= 0 else -(-number % of)


def text(part: bytes | None) -> str | None:
    return None if part is None else base64.b64encode(part).decode()


if __name__ == "__main__":
    for path in sys.argv[1:]:
        reader = Reader(path)
        for line in reader.lines():
            print(json.dumps(line))
