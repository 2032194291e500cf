"""Parses the options of a reader: topics, start, end, and limits.

Names and meanings are those of Spark's Kafka connector. Some options have no effect here, and some are
refused with an alternative; docs/spark.md has the same table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from eosdb import EARLIEST, LATEST, TopicPartition
from eosdb.errors import InvalidGroupIdError
from eosdb.model.damage import parsed
from eosdb.model.validation import check_group_id
from eosdb.model.values import IsolationLevel
from eosdb.spark_io.planning.errors import Ignoring, SparkOptionError
from eosdb.spark_io.planning.offsets import MarkedOffset, parse_offset

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
"""Options without effect: a file has no servers, no requests that time out, and no internal consumers."""
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
"""Options that are refused, each with its alternative. The connector refuses most of these, too."""
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
    `own` are the options that the caller uses."""
    for name in options:
        if name in REFUSED:
            raise SparkOptionError(f"option {name} does nothing here: {REFUSED[name]}")
        # Kafka's other settings concern connections and speed, so they are ignored.
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


_READING = {name.lower() for name in HONOURED} - {"topic"} | {
    "path", "paths", "isolationlevel", "groupid", "columns", "includesourcefile", "ignorecorruptfiles",
    "ignoremissingfiles",
}  # fmt: skip
_ROWS_PER_TASK = 200_000
_TRIGGER_DELAY = "15m"
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets, or times, by topic and partition; EARLIEST and LATEST are allowed as offsets."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The start or end of reading: EARLIEST or LATEST, or offsets or times (ms), for all partitions or for
    each."""

    special: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None
    marked: Mapping[TopicPartition, MarkedOffset] = field(default_factory=dict)
    """The offsets of a checkpoint, with the mark of their file and the id of their topic."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader."""

    is_stream: bool
    topics: frozenset[str] | None
    pattern: re.Pattern[str] | None
    assigned: frozenset[TopicPartition] | None
    start: Limit
    end: Limit
    late_start_is_latest: bool
    """Whether a start time after the newest record means the log end; otherwise it is an error."""
    isolation_level: IsolationLevel
    min_partitions: int | None
    rows_per_task: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    group_id: str | None
    ignoring: Ignoring

    def wants(self, tp: TopicPartition) -> bool:
        """Whether the options select the partition."""
        if self.assigned is not None:
            return tp in self.assigned
        if self.topics is not None:
            return tp.topic in self.topics
        return self.pattern is None or self.pattern.fullmatch(tp.topic) is not None


def parse(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a reader. Raises SparkOptionError."""
    options = {name.lower(): value for name, value in given.items()}
    check(options, _READING)
    topics, pattern, assigned = _subscription(options)
    ends = [
        n for n in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp") if n in options
    ]
    if streaming and ends:
        raise SparkOptionError(f"option {ends[0]}: a stream has no end")
    default = options.get("kafka.isolation.level", "read_committed")
    isolation = _choice(options, "isolationlevel", default, "read_committed", "read_uncommitted")
    if streaming and isolation == "read_uncommitted":
        raise SparkOptionError("option isolationLevel: a stream reads read_committed only")
    least, most = (_positive(options, f"{side}offsetspertrigger") for side in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise SparkOptionError(
            f"options minOffsetsPerTrigger and maxOffsetsPerTrigger: {least} is more than {most}"
        )
    return ReadOptions(
        is_stream=streaming,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=_limit(options, "starting", EARLIEST if not streaming else LATEST, streaming),
        end=_limit(options, "ending", LATEST, streaming),
        late_start_is_latest=_choice(
            options, "startingoffsetsbytimestampstrategy", "error", "error", "latest"
        )
        == "latest",
        isolation_level="read_committed" if isolation == "read_committed" else "read_uncommitted",
        min_partitions=_positive(options, "minpartitions"),
        rows_per_task=_positive(options, "maxrecordsperpartition") or _ROWS_PER_TASK,
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_milliseconds("maxTriggerDelay", options, _TRIGGER_DELAY),
        fail_on_data_loss=boolean(options, "failondataloss", default=True),
        group_id=_group_id(options),
        ignoring=Ignoring(
            corrupt=boolean(options, "ignorecorruptfiles", default=False),
            missing=boolean(options, "ignoremissingfiles", default=False),
        ),
    )


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _choice(options, name, str(default), "true", "false") == "true"


def _choice(options: Mapping[str, str], name: str, default: str, *words: str) -> str:
    word = str(options.get(name, default)).lower()
    if word not in words:
        raise SparkOptionError(
            f"option {spelled(name)}: got {word!r}, expected {' or '.join(words)}"
        )
    return word


def _subscription(
    options: Mapping[str, str],
) -> tuple[frozenset[str] | None, re.Pattern[str] | None, frozenset[TopicPartition] | None]:
    given = [n for n in ("subscribe", "subscribepattern", "assign") if n in options]
    if len(given) > 1:
        raise SparkOptionError(
            f"options {' and '.join(given)}: expected one of subscribe, subscribePattern and assign"
        )
    if not given:
        return None, None, None
    value = options[given[0]]
    if given[0] == "subscribe":
        topics = frozenset(name.strip() for name in value.split(",") if name.strip())
        if not topics:
            raise SparkOptionError(f"option subscribe: got {value!r}, expected topics, such as a,b")
        return topics, None, None
    if given[0] == "subscribepattern":
        try:
            return None, re.compile(value), None
        except re.error as error:
            raise SparkOptionError(
                f"option subscribePattern: got {value!r}, expected a regular expression: {error}"
            ) from None
    by_topic = _json("assign", value)
    try:
        assigned = frozenset(
            TopicPartition(topic, int(p))
            for topic, partitions in by_topic.items()
            for p in partitions
        )
    except (TypeError, ValueError):
        raise SparkOptionError(
            f'option assign: got {value!r}, expected {{"topic":[0,1]}}'
        ) from None
    return None, None, assigned


def _limit(options: Mapping[str, str], side: str, default: int, streaming: bool) -> Limit:
    """Times take precedence over times by partition, which take precedence over offsets (Kafka's
    connector)."""
    if (text := options.get(f"{side}timestamp")) is not None:
        if not text.strip().isdigit():
            raise SparkOptionError(
                f"option {side}Timestamp: got {text!r}, expected milliseconds since the epoch"
            )
        return Limit(timestamp=int(text))
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        return Limit(timestamps=_by_partition(f"{side}OffsetsByTimestamp", text))
    text = options.get(f"{side}offsets")
    if text is None:
        return Limit(special=default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if word == "latest" and side == "starting" and not streaming:
            raise SparkOptionError("option startingOffsets: a batch cannot begin at latest")
        if word == "earliest" and side == "ending":
            raise SparkOptionError("option endingOffsets: got earliest, expected latest or offsets")
        return Limit(special=EARLIEST if word == "earliest" else LATEST)
    offsets = _by_partition(f"{side}Offsets", text)
    forbidden = {"ending": (EARLIEST,), "starting": () if streaming else (LATEST,)}[side]
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset < EARLIEST or offset in forbidden:
                raise SparkOptionError(
                    f"option {side}Offsets: {topic}/{partition} cannot be {offset} here"
                )
    return Limit(offsets=offsets, marked=_marked(text))


def _group_id(options: Mapping[str, str]) -> str | None:
    name = options.get("groupid")
    if name is None:
        return None
    try:
        return check_group_id(name)
    except InvalidGroupIdError as error:
        raise SparkOptionError(f"option groupId: {error}") from None


def _by_partition(name: str, text: str) -> Offsets:
    try:
        return {
            topic: {int(p): parse_offset(offset).offset for p, offset in partitions.items()}
            for topic, partitions in _json(name, text).items()
        }
    except (TypeError, ValueError, AttributeError):
        raise SparkOptionError(
            f'option {name}: got {text!r}, expected earliest, latest or {{"topic":{{"0":23}}}}'
        ) from None


def _marked(text: str) -> dict[TopicPartition, MarkedOffset]:
    """The offsets that have marks, from a text that was already validated."""
    return {
        TopicPartition(topic, int(partition)): marked
        for topic, partitions in parsed(text).items()
        for partition, value in partitions.items()
        if (marked := parse_offset(value)).mark is not None
    }


def _json(name: str, text: str) -> dict[str, dict[str, int]]:
    try:
        value = parsed(text)
    except ValueError as error:
        raise SparkOptionError(
            f"option {name}: got {text!r}, which is not valid JSON ({error})"
        ) from None
    if not isinstance(value, dict):
        raise SparkOptionError(f"option {name}: got {text!r}, expected a JSON object by topic")
    return value


def _milliseconds(name: str, options: Mapping[str, str], default: str) -> int:
    """Parse a duration as Spark writes it: a number with a unit, or milliseconds."""
    text = options.get(name.lower(), default)
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise SparkOptionError(f"option {name}: got {text!r}, expected a time such as 15m or 30s")
    return int(match[1]) * _UNITS_MS[match[2]]


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise SparkOptionError(f"option {name}: got {text!r}, expected 1 or more")
    return int(text)
