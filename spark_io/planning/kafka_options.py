"""The options of Spark's Kafka connector: honoured, accepted without effect, or refused with an
alternative. docs/spark.md has the same table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from eosdb.spark_io.planning.errors import SparkOptionError

HONOURED: Final = (
    "assign", "subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "kafka.isolation.level",
    "topic",
)  # fmt: skip
ACCEPTED: Final = (
    "kafka.bootstrap.servers", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "groupIdPrefix",
)  # fmt: skip
"""Accepted without effect: a file has no servers, no requests that time out, and no internal consumers."""
REFUSED: Final = {
    "kafka.group.id": "no group reads here; groupId commits the progress for one",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are binary; convert them in the query",
    "kafka.value.deserializer": "values are binary; convert them in the query",
    "kafka.key.serializer": "convert keys to string or binary in the query",
    "kafka.value.serializer": "convert values to string or binary in the query",
    "kafka.enable.auto.commit": "Spark's checkpoint keeps the offsets; groupId commits them for a group",
    "kafka.interceptor.classes": "there is no consumer or producer to intercept",
    "kafka.partitioner.class": "use option partitioner",
    "kafka.transactional.id": "the sink is exactly once by itself",
}
"""Refused, with the alternative. The connector refuses most of these, too."""
_KAFKAS_OWN: Final = "kafka."
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
_INNER: Final = frozenset({"microbatch", "report"})
_SPELLING: Final = {
    name.lower(): name
    for name in (
        *HONOURED, *ACCEPTED, "checkpointLocation", "groupId", "ignoreCorruptFiles", "ignoreMissingFiles",
        "includeSourceFile", "isolationLevel", "outputMode", "queryName", "sinkId", "stagingDir",
        "subscribePattern", "txnAppId", "txnVersion", "writeName",
    )
}  # fmt: skip
_ACCEPTED: Final = frozenset(name.lower() for name in ACCEPTED)


def check(options: Mapping[str, str], own: Collection[str]) -> None:
    """Raises SparkOptionError for the first option that is refused or unknown. Names are in lower case;
    `own` are those that the caller honours."""
    for name in options:
        if name in REFUSED:
            raise SparkOptionError(f"option {name} does nothing here: {REFUSED[name]}")
        # All other settings of Kafka's clients concern connections and speed.
        if not (name in own or name in _ACCEPTED | _SPARKS_OWN or name.startswith(_KAFKAS_OWN)):
            alike = get_close_matches(name, {*own, *_ACCEPTED, *_SPARKS_OWN} - _INNER, n=1)
            guess = f"; did you mean {spelled(alike[0])}?" if alike else ""
            raise SparkOptionError(f"option {name} is not known{guess}; see the page about Spark")


def spelled(name: str) -> str:
    return _SPELLING.get(name, name)


CATALOG: Final = (
    "a table of Spark's catalog cannot be one of eosdb's, because Spark gives the source none of the "
    "table's options when it reads or writes it; use CREATE TEMPORARY VIEW name USING eosdb OPTIONS (path "
    "'...'), or read() and createOrReplaceTempView()"
)
