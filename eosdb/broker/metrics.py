"""Metrics of the broker's requests: count and time of each kind, errors by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from eosdb.errors import CorruptDatabaseError, CorruptRecordError, EosdbError
from eosdb.log.batch import PreparedBatch
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import one_line
from eosdb.model.values import ProduceResult, TopicPartition

C = TypeVar("C", bound=type)

REQUESTS: Final = (
    "init_producer_id", "add_partitions_to_txn", "produce", "add_offsets_to_txn", "txn_offset_commit",
    "end_txn", "write_txn_markers", "fetch", "list_offsets", "offset_commit", "offset_fetch",
    "offset_delete", "delete_group", "find_coordinator", "describe_producers",
    "describe_transactions", "list_transactions", "delete_records", "join_group", "sync_group",
    "heartbeat", "leave_group", "consumer_group_heartbeat", "describe_consumer_group",
)  # fmt: skip
_OTHER_FORMS: Final = {"fetch_columns": "fetch", "fetch_data": "fetch"}
"""Methods that are variants of a request, and the request they are counted as."""
RATES: Final = ("messages-in", "bytes-in")


def counts_requests(cls: C) -> C:
    """Class decorator: count every request of the broker in its `request_metrics`."""
    for name, counted_as in ({name: name for name in REQUESTS} | _OTHER_FORMS).items():
        setattr(cls, name, _counted(counted_as, getattr(cls, name)))
    return cls


def _counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    requests, time = f"requests:{name}", f"request-time-ns:{name}"

    @functools.wraps(method)
    def request(self: Any, *args: Any, **options: Any) -> Any:
        metrics: Metrics = self._core.metrics
        start = metrics.now_ns()
        try:
            return method(self, *args, **options)
        except EosdbError as error:
            metrics.error(error)
            if isinstance(error, (CorruptDatabaseError, CorruptRecordError)):
                _tell_of_damage(self._core, error)
            raise
        finally:
            metrics.took(requests, time, start)

    return request


def _tell_of_damage(core: Any, error: EosdbError) -> None:
    """Log each damage once, although a consumer meets it again with each poll."""
    text = one_line(error)
    if text not in core.damage:
        core.damage.add(text)
        catalog.DAMAGE_FOUND.say(file=core.store.path, error=error)


def count_produced(
    metrics: Metrics,
    batches: Mapping[TopicPartition, PreparedBatch],
    results: Mapping[TopicPartition, ProduceResult],
) -> None:
    """Count the results of a produce request: records, duplicate batches, errors."""
    for tp, result in results.items():
        if result.error is not None:
            metrics.error(result.error)
        elif result.duplicate:
            metrics.count("duplicate-batches")
        else:
            batch = batches[tp]
            metrics.record({"messages-in": batch.count, "bytes-in": batch.size})
