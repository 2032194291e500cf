"""The status of a relay: lag in records, bytes and time, counts, the last error, and its positions.

The position topic in the target has the next offset for each partition of a source. A position is written
in the transaction of the records before it. The topic is compacted: the newest record of a key counts, and
none expires, as group offsets would. Each relay and source has one claim: the run of the relay that wrote
last, and a mark of the source's history at that time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from eosdb.errors import CorruptRecordError
from eosdb.integrations.relay.values import Chunk, RelayPosition, RelayRecords
from eosdb.model.clock import Clock
from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition

# decisions/0045: the positions are records of a topic, because group offsets expire.
POSITIONS_TOPIC: Final = "__eosdb_relay_positions"
POSITIONS_CONFIG: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Standing:
    """The stored state of a relay and a source. `run` and `mark` are empty before the first claim."""

    positions: Mapping[TopicPartition, RelayPosition] = field(default_factory=dict)
    run: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Builds and parses the position records of one relay and one source."""

    relay: str
    source_id: str
    topic: str = POSITIONS_TOPIC

    def position(self, tp: TopicPartition, position: RelayPosition) -> RelayRecords:
        value = {"offset": position.offset, "topic_id": position.topic_id}
        if position.target_id:
            value["target_id"] = position.target_id
        return self._record({"topic": tp.topic, "partition": tp.partition}, value)

    def claim(self, run: str, mark: str) -> RelayRecords:
        return self._record({}, {"run": run, "mark": mark})

    def standing(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> Standing:
        """The state after all records (key, value) of the topic, in order. Raises CorruptRecordError for a
        record that no relay wrote."""
        positions: dict[TopicPartition, RelayPosition] = {}
        run = mark = ""
        for key, value in records:
            try:
                named = parsed(key or b"")
                if named["relay"] != self.relay or named["source"] != self.source_id:
                    continue
                if "topic" not in named:
                    said = parsed(value) if value else {}
                    run, mark = said.get("run", ""), said.get("mark", "")
                    continue
                tp = TopicPartition(named["topic"], int(named["partition"]))
                if value is None:
                    positions.pop(tp, None)
                else:
                    said = parsed(value)
                    positions[tp] = RelayPosition(
                        int(said["offset"]), str(said["topic_id"]), str(said.get("target_id", ""))
                    )
            except (ValueError, KeyError, TypeError, AttributeError):
                raise CorruptRecordError(
                    f"the topic {self.topic} has a record that no relay wrote: key {key!r:.200}, value "
                    f"{value!r:.200}; name another topic for positions, or delete that record's key"
                ) from None
        return Standing(positions, run, mark)

    def _record(self, of: Mapping[str, object], value: Mapping[str, object]) -> RelayRecords:
        key = {"relay": self.relay, "source": self.source_id, **of}
        return RelayRecords(self.topic, 0, None, _json(key), _json(value), ())


def transactional_id(relay: str, source_id: str) -> str:
    """The transactional id of a relay. It is constant, so that a restarted relay ends its predecessor's
    transaction, and fences a predecessor that is alive."""
    return f"eosdb-relay:{relay}:{source_id}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of a source's partition. Lags count readable data; -1 if they are unknown."""

    topic: str
    partition: int
    position: int
    """The next offset to be relayed."""
    end: int
    """The offset up to which the partition can be read."""
    lag: int
    """The number of offsets from the position to the end: records, markers and aborted records."""
    lag_bytes: int
    """An estimate: the lag in records times their mean size in this run."""
    lag_ms: int
    """The age of the newest relayed record; 0 if there is nothing left to relay."""


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """The counts of a relay since it was built, and its positions."""

    partitions: tuple[PartitionStatus, ...]
    records: int
    bytes: int
    """Bytes of keys and values."""
    transactions: int
    failures: int
    """The number of failures after which the relay started a new session."""
    last_error: str
    """The message of the last error; empty if there was none since the last transaction."""

    @property
    def lag(self) -> int:
        """The sum of the partitions' lags."""
        return sum(partition.lag for partition in self.partitions if partition.lag > 0)


class Progress:
    """The counts of one relay. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._newest: dict[TopicPartition, int] = {}
        self._noted: dict[TopicPartition, int] = {}
        self._records = self._bytes = self._transactions = self._failures = 0
        self._error = ""

    def began(self, starts: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            self._positions = dict(starts)
            self._error = ""

    def ends(self, ends: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            self._ends = dict(ends)

    def wrote(self, chunk: Chunk) -> None:
        with self._lock:
            self._positions |= chunk.positions
            self._transactions += 1
            self._records += len(chunk.records)
            self._error = ""
            for record in chunk.records:
                self._bytes += record.size
                if record.timestamp is not None:
                    self._newest[TopicPartition(record.topic, record.partition)] = record.timestamp

    def failed(self, error: str) -> None:
        with self._lock:
            self._failures += 1
            self._error = error

    def unnoted(self) -> dict[TopicPartition, int]:
        """The positions that have changed since the last call."""
        with self._lock:
            changed = {tp: at for tp, at in self._positions.items() if self._noted.get(tp) != at}
            self._noted |= changed
            return changed

    def status(self) -> RelayStatus:
        with self._lock:
            now_ms, mean = self._clock.time_ms(), self._bytes / max(self._records, 1)
            partitions = tuple(
                self._partition(tp, at, now_ms, mean) for tp, at in sorted(self._positions.items())
            )
            return RelayStatus(
                partitions,
                self._records,
                self._bytes,
                self._transactions,
                self._failures,
                self._error,
            )

    def _partition(self, tp: TopicPartition, at: int, now_ms: int, mean: float) -> PartitionStatus:
        end = self._ends.get(tp, -1)
        lag = max(end - at, 0) if end >= 0 else -1
        if lag <= 0:
            return PartitionStatus(*tp, at, end, lag, lag, lag)
        lag_bytes = round(lag * mean) if self._records else -1
        lag_ms = max(now_ms - self._newest[tp], 0) if tp in self._newest else -1
        return PartitionStatus(*tp, at, end, lag, lag_bytes, lag_ms)
