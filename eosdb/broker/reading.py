"""The requests of readers: Fetch, ListOffsets, Metadata, waiting for new records; and DeleteRecords.

A commit by any process is noticed within milliseconds, at almost no cost while idle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from eosdb.broker.core import Core, Write, answers, prepares
from eosdb.errors import EosdbError, InvalidTopicExceptionError, in_doubt, in_part
from eosdb.log import lives, partition_rows, retention, scheduled, topics
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import block as reading
from eosdb.log.reading import by_time, lag
from eosdb.log.reading.block import ReadLimits
from eosdb.model import requests
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.closing import Closeable
from eosdb.model.fetched import Block, FetchResult, LeaderEpochs, Want
from eosdb.model.protocol.consumer_questions import HaveMoved, Moved
from eosdb.model.reports import Lag
from eosdb.model.validation import check_int, check_text, check_topic_name, check_topic_partition
from eosdb.model.values import (
    OffsetAndTimestamp,
    PartitionOffsets,
    TopicMetadata,
    TopicPartition,
)
from eosdb.store.file.watch import Watch
from eosdb.store.schema import file_id
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

# decisions/0011: the kernel reports a write to the WAL; `data_version` then shows if it was a commit.
_LOOK_AT_LEAST_MS: Final = 100
"""Check `data_version` at least this often, even without a reported write."""
_UNTIL_COMMIT_MS: Final = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8)
"""Pauses between checks after a write to the WAL: the commit is visible only after its sync."""
_LONGEST_PAUSE_MS: Final = 10


class Listener(Closeable):
    """Waits for commits to one file by any process. Close it after use."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watch: Watch | None = store.watch() if isinstance(clock, SystemClock) else None

    def wait(
        self, version: int, timeout_ms: int, cancelled: Callable[[], bool] = lambda: False
    ) -> int:
        """Return `store.data_version()` as soon as it differs from `version`, at the latest after
        `timeout_ms` or when `cancelled` returns True."""
        clock = self._clock
        deadline, pause_ms = clock.monotonic_ms() + timeout_ms, 1
        pauses: list[int] = []
        while (current := self._store.data_version()) == version:
            left_ms = deadline - clock.monotonic_ms()
            if left_ms <= 0 or cancelled():
                break
            if self._watch is None:
                clock.sleep_ms(min(pause_ms, left_ms))
                pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)
            elif pauses:
                clock.sleep_ms(min(pauses.pop(), left_ms))
            elif self._watch.wait(min(left_ms, _LOOK_AT_LEAST_MS)):
                pauses = list(reversed(_UNTIL_COMMIT_MS))
        return current

    def close(self) -> None:
        if self._watch is not None:
            self._store.left(self._watch)


@answers(requests.Fetch)
def fetch(core: Core, request: requests.Fetch) -> FetchResult:
    block = _fetch(core, request, Want.STORED)
    bounds = block.bounds
    return FetchResult(
        block.records(),
        bounds.high_watermark,
        bounds.last_stable_offset,
        bounds.log_start_offset,
        list(block.aborted),
        block.stop,
    )


@answers(requests.FetchBatches)
def fetch_batches(core: Core, request: requests.FetchBatches) -> Block:
    return _fetch(core, request, Want.BATCHES)


@answers(requests.FetchData)
def fetch_data(core: Core, request: requests.FetchData) -> Block:
    return _fetch(core, request, Want.SHOWN)


def _fetch(
    core: Core, request: requests.Fetching[Any], want: Want, *, is_last: bool = False
) -> Block:
    tp = check_topic_partition(request.topic_partition)
    committed = reading.check_isolation_level(request.isolation_level)
    offset = check_int("offset", request.offset, -(2**63))
    check_int("max_records", request.max_records, 1)
    check_int("max_bytes", request.max_bytes, 0)
    with core.store.read() as connection:
        due_ms = scheduled.next_due(connection)
        core.authorizer.check(connection, "read", "topic", tp.topic)
        partition = partition_rows.read(connection, tp)
        if request.topic_id is not None:
            topics.check_id(connection, partition.topic_id, request.topic_id)
        block = reading.read(
            connection,
            partition,
            offset,
            reading.checked_bound(partition, offset, read_committed=committed),
            committed=committed,
            want=want,
            limits=ReadLimits(request.max_records, request.max_bytes),
            check_crcs=bool(request.check_crcs),
        )
    bounds = block.bounds
    is_held = committed and not block.size and bounds.last_stable_offset < bounds.high_watermark
    is_due = due_ms is not None and due_ms <= core.clock.time_ms()
    if (is_held or is_due) and not is_last and core.coordinator.serve_readers():
        return _fetch(core, request, want, is_last=True)
    return block


@answers(requests.Idle)
def idle(core: Core, request: requests.Idle) -> dict[TopicPartition, PartitionOffsets]:
    read_committed = reading.check_isolation_level(request.isolation_level)
    with core.store.read() as connection:
        may_read = cache(partial(core.authorizer.allows, connection, "read", "topic"))
        return {
            partition.topic_partition: partition.offsets()
            for partition in lag.idle(connection, request.positions, read_committed=read_committed)
            if may_read(partition.topic)
        }


@answers(HaveMoved)
def have_moved(core: Core, request: HaveMoved) -> bool:
    read_committed = reading.check_isolation_level(request.isolation_level)
    with core.store.read() as connection:
        return lag.have_moved(connection, request.listed, read_committed=read_committed)


@answers(Moved)
def moved(core: Core, request: Moved) -> list[TopicPartition]:
    read_committed = reading.check_isolation_level(request.isolation_level)
    with core.store.read() as connection:
        may_read = core.authorizer.describes(connection, "read")
        to_id = topics.ids(connection)
        numbers = topics.numbers(connection, request.topic_ids)
        present = {
            name: positions
            for name, positions in request.positions.items()
            if name in numbers
            and to_id(numbers[name][0]) == request.topic_ids[name]
            and may_read("topic", name)
        }
        others = [
            TopicPartition(name, partition)
            for name, positions in request.positions.items()
            if name not in present
            for partition in positions
        ]
        return others + lag.moved(connection, present, read_committed=read_committed)


@answers(requests.ListOffsets)
def list_offsets(core: Core, request: requests.ListOffsets) -> OffsetAndTimestamp:
    tp = check_topic_partition(request.topic_partition)
    read_committed = reading.check_isolation_level(request.isolation_level)
    check_int("timestamp", request.timestamp, -3)
    with core.reading("describe", "topic", tp.topic) as connection:
        partition = partition_rows.read(connection, tp)
        return by_time.list_offset(
            connection, partition, request.timestamp, read_committed=read_committed
        )


@answers(requests.Offsets)
def offsets(core: Core, request: requests.Offsets) -> PartitionOffsets:
    tp = check_topic_partition(request.topic_partition)
    with core.reading("describe", "topic", tp.topic) as connection:
        return partition_rows.read(connection, tp).offsets()


@answers(requests.LeaderEpochs)
def leader_epochs(core: Core, request: requests.LeaderEpochs) -> LeaderEpochs:
    with core.store.read() as connection:
        if request.topic_partition is None:
            return LeaderEpochs(lives.current(connection), 0)
        tp = check_topic_partition(request.topic_partition)
        core.authorizer.check(connection, "describe", "topic", tp.topic)
        partition = partition_rows.read(connection, tp)
        return lives.epochs(connection, partition.partition_id, partition.log_end_offset)


@answers(requests.Lag)
def measure_lag(core: Core, request: requests.Lag) -> Lag:
    tp = check_topic_partition(request.topic_partition)
    read_committed = reading.check_isolation_level(request.isolation_level)
    check_int("offset", request.offset, 0)
    with core.reading("describe", "topic", tp.topic) as connection:
        partition = partition_rows.read(connection, tp)
        return lag.measure(connection, partition, request.offset, read_committed=read_committed)


@answers(requests.TopicPartitions)
def topic_partitions(core: Core, request: requests.TopicPartitions) -> dict[str, int]:
    with core.store.read() as connection:
        may_describe = core.authorizer.describes(connection)
        return {
            name: count
            for name, (_, count) in topics.numbers(connection, request.names).items()
            if request.every or may_describe("topic", name)
        }


@answers(requests.TopicMetadata)
def topic_metadata(core: Core, request: requests.TopicMetadata) -> list[TopicMetadata]:
    for name in request.names or ():
        check_text("names", name, InvalidTopicExceptionError)
    with core.store.read() as connection:
        may_describe = core.authorizer.describes(connection)
        found = topics.metadata(connection, request.names)
        return [topic for topic in found if may_describe("topic", topic.name)]


@answers(requests.TopicNames)
def topic_names(core: Core, request: requests.TopicNames) -> dict[UUID, str]:
    with core.store.read() as connection:
        return topics.names(connection)


@answers(requests.Topic)
def topic(core: Core, request: requests.Topic) -> TopicMetadata:
    name = request.topic
    check_text("topic", name, InvalidTopicExceptionError)
    with core.reading("describe", "topic", name) as connection:
        matches = topics.metadata(connection, (name,))
        if matches:
            return matches[0]
        check_topic_name(name)
        if not (request.may_create and core.config.auto_create_topics_enable):
            raise topics.unknown(connection, name)
    core.coordinator.write(lambda unit: core.ensure_topic(unit, name))
    return topic(core, request)


@prepares(requests.AlterTopicConfig)
def alter_topic_config(core: Core, request: requests.AlterTopicConfig) -> Write[None]:
    def alter(unit: Unit) -> None:
        for event in core.altered(unit, request):
            unit.record(event)

    return Write(alter)


@answers(requests.ClusterId)
def cluster_id(core: Core, request: requests.ClusterId) -> str:
    with core.store.read() as connection:
        return file_id.read(connection)


@answers(requests.DataVersion)
def data_version(core: Core, request: requests.DataVersion) -> int:
    return core.store.data_version()


@answers(requests.WaitForChange)
def wait_for_change(core: Core, request: requests.WaitForChange) -> int:
    timeout_ms, now = request.timeout_ms, core.clock.time_ms()
    with core.store.read() as connection:
        due_ms = core.coordinator.next_for_readers(connection)
    if due_ms is not None and due_ms > now:
        timeout_ms = min(timeout_ms, due_ms - now)
    elif due_ms is not None:
        core.coordinator.serve_readers()
    with Listener(core.store, core.clock) as listener:
        version = listener.wait(request.version, timeout_ms, request.cancelled)
    if version == request.version and core.coordinator.serve_readers():
        version = core.store.data_version()
    # After a change the client reads and waits again, and that call does what is due.
    return version


@answers(requests.DeleteRecords)
def delete_records(core: Core, request: requests.DeleteRecords) -> int:
    tp = check_topic_partition(request.topic_partition)
    check_int("before_offset", request.before_offset, -(2**63))
    reached: int | None = None
    target = request.before_offset
    met: dict[str, int] = {}

    def delete(unit: Unit) -> tuple[Partition, tuple[int, int]]:
        core.authorizer.check(unit, "delete", "topic", tp.topic)
        done = f"its records below offset {reached} had been deleted, and none of a newer topic"
        topics.check_still_there(unit, met, done)
        partition = partition_rows.load(unit, tp)
        config = partition_rows.config(unit, partition.topic_id, core.config)
        now = core.clock.time_ms()
        return partition, retention.delete_records(unit, partition, target, config, now)

    while reached != target:  # One unit deletes a limited number of records.
        try:
            partition, (reached, target) = core.coordinator.write(delete)
            assert reached <= target, (reached, target)
            met[tp.topic] = partition.topic_id
        except EosdbError as error:
            if reached is not None:
                # A repeated call continues.
                in_doubt(in_part(error, f"the records below offset {reached} are deleted"))
            raise
    core.delete_rows([partition.partition_id])
    return target


@answers(requests.AuthorizedOperations)
def authorized_operations(core: Core, request: requests.AuthorizedOperations) -> frozenset[str]:
    check_text("name", request.resource)
    with core.store.read() as connection:
        return core.authorizer.operations(connection, request.resource_type, request.resource)
