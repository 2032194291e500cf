"""What a database counts of the records that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eosdb.log.batch import PreparedBatch
from eosdb.model.metrics import Metrics
from eosdb.model.values import ProduceResult, TopicPartition

RATES: Final = ("messages-in", "bytes-in")


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
