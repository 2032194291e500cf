"""What a reader is asked for, checked without Spark: the Kafka connector's options and their errors."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from eosdb import EARLIEST, LATEST, ManualClock, TopicPartition
from eosdb.spark_io import offsets_behind_latest
from eosdb.spark_io.planning import options
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import Limit, parse
from eosdb.spark_io.reading.stream import Trigger
from eosdb.spark_io.writing import outgoing
from tests.cases import each
from tests.tidy.tree import ROOT


def test_a_subscription_is_topics_a_pattern_or_partitions() -> None:
    assert parse({"subscribe": "a, b"}, streaming=False).wants(TopicPartition("b", 7))
    assert not parse({"subscribe": "a"}, streaming=False).wants(TopicPartition("ab", 0))
    pattern = parse({"subscribePattern": "a.*"}, streaming=False)
    assert pattern.wants(TopicPartition("ab", 0))
    assert not pattern.wants(TopicPartition("ba", 0))
    assigned = parse({"assign": '{"a":[0,2]}'}, streaming=False)
    assert assigned.wants(TopicPartition("a", 2))
    assert not assigned.wants(TopicPartition("a", 1))
    assert parse({}, streaming=False).wants(TopicPartition("anything", 0))


@pytest.mark.parametrize(("streaming", "start"), [(False, EARLIEST), (True, LATEST)])
def test_batches_begin_at_the_beginning_and_streams_at_the_end(streaming: bool, start: int) -> None:
    parsed = parse({}, streaming=streaming)
    assert (parsed.start, parsed.end) == (Limit(special=start), Limit(special=LATEST))
    assert parsed.isolation_level == "read_committed"
    assert parsed.fail_on_data_loss


def test_names_of_options_have_no_case_and_kafkas_own_mean_nothing() -> None:
    given = {
        "STARTINGOFFSETS": "earliest", "kafka.bootstrap.servers": "x:9092",
        "kafkaConsumer.pollTimeoutMs": "1", "kafka.security.protocol": "SSL",
        "MaxOffsetsPerTrigger": "10", "isolationLEVEL": "read_committed",
    }  # fmt: skip
    parsed = parse(given, streaming=True)
    assert parsed.start == Limit(special=EARLIEST)
    assert parsed.max_offsets_per_trigger == 10


def test_times_win_over_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingTimestamp": "5"}
    assert parse(given, streaming=False).start == Limit(timestamp=5)
    given = {"endingOffsets": '{"a":{"0":3}}', "endingOffsetsByTimestamp": '{"a":{"0":7}}'}
    assert parse(given, streaming=False).end == Limit(timestamps={"a": {0: 7}})


@each(
    ("given", "streaming", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, False, "expected one of"),
        ({"subscribe": " , "}, False, "expected topics"),
        ({"subscribePattern": "("}, False, "expected a regular expression"),
        ({"assign": "a"}, False, "not valid JSON"),
        ({"assign": '{"a": 3}'}, False, "expected"),
        ({"assign": "[1]"}, False, "JSON object"),
        ({"startingOffsets": "latest"}, False, "cannot begin at latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, False, "cannot be -1"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, True, "cannot be -3"),
        ({"startingOffsets": "first"}, False, "not valid JSON"),
        ({"endingOffsets": "earliest"}, False, "expected latest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, False, "cannot be -2"),
        ({"endingOffsets": "latest"}, True, "no end"),
        ({"startingTimestamp": "noon"}, False, "milliseconds"),
        ({"isolationLevel": "serializable"}, False, "expected read_committed"),
        ({"isolationLevel": "read_uncommitted"}, True, "read_committed only"),
        ({"failOnDataLoss": "maybe"}, False, "true or false"),
        ({"minPartitions": "0"}, False, "1 or more"),
        ({"startingOffsetsByTimestampStrategy": "best"}, False, "error or latest"),
        ({"subcribe": "a"}, False, "not known"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, True, "9 is more than 8"),
        ({"maxTriggerDelay": "soon"}, True, "expected a time such as 15m"),
        ({"groupId": "\ud800"}, True, "option groupId"),
    ],
)
def test_options_that_do_not_fit_say_so(
    given: dict[str, str], streaming: bool, message: str
) -> None:
    with pytest.raises(SparkOptionError, match=message):
        parse(given, streaming=streaming)


GOOD = {"key": "string", "value": "binary"}


@pytest.mark.parametrize(
    ("given", "types", "message"),
    [
        ({"topic": "t"}, GOOD, "no file"),
        ({"path": "x"}, GOOD, "name the topic"),
        (
            {"path": "x", "topic": "t"},
            {"key": "string"},
            "value, the content of the records, is missing",
        ),
        ({"path": "x", "topic": "t"}, {"value": "int"}, "got int"),
        ({"path": "x", "topic": "t"}, {"value": "string", "Key": "string"}, "rename it to key"),
        *(
            ({"path": "x", "topic": "t"}, {**GOOD, name: "timestamp"}, f"column {name}: .* drop")
            for name in ("deliver_at", "Deliver_At", "deliver_after", "idempotency_key")
        ),
        ({"path": "x", "topic": "t", "kafka.partitioner.class": "C"}, GOOD, "option partitioner"),
        (
            {"path": "x", "topic": "t", "kafka.transactional.id": "C"},
            GOOD,
            "exactly once by itself",
        ),
        ({"topic": "t"}, GOOD, "CREATE TEMPORARY VIEW"),
        ({"path": "x", "topic": "t", "txnAppId": "a"}, GOOD, "both or neither"),
        ({"path": "x", "topic": "t", "txnAppId": "a", "txnVersion": "b"}, GOOD, "0 or more"),
        ({"path": "x", "topic": "t", "colour": "red"}, GOOD, "not known"),
    ],
)
def test_what_cannot_be_written_says_so(
    given: dict[str, str], types: dict[str, str], message: str
) -> None:
    with pytest.raises(SparkOptionError, match=message):
        outgoing.parse(given, types)


DOCUMENTED = re.compile(r"^\| (`[\w.`, ]+`) \| (honoured|accepted|refused)", re.MULTILINE)


def test_every_option_of_kafkas_connector_is_in_the_docs_as_the_code_has_it() -> None:
    page = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
    documented = {
        option: here
        for options, here in DOCUMENTED.findall(page)
        for option in re.findall(r"[\w.]+", options)
    }
    decided = dict.fromkeys(options.HONOURED, "honoured")
    decided |= dict.fromkeys(options.ACCEPTED, "accepted")
    decided |= dict.fromkeys(options.REFUSED, "refused")
    assert documented == decided


@each("name", [*options.ACCEPTED, *options.REFUSED])
def test_what_is_accepted_changes_nothing_and_what_is_refused_is_refused(name: str) -> None:
    written = {"path": "x", "topic": "t"}
    if name in options.REFUSED:
        for parsed in (
            lambda: parse({name: "1"}, streaming=True),
            lambda: outgoing.parse({**written, name: "1"}, GOOD),
        ):
            with pytest.raises(SparkOptionError, match=f"option {name} does nothing here"):
                parsed()
    else:
        assert parse({name: "1"}, streaming=False) == parse({}, streaming=False)
        assert outgoing.parse({**written, name: "1"}, GOOD) == outgoing.parse(written, GOOD)


WORTH_SETTING = {
    "assign": '{"a":[0]}', "subscribe": "a", "subscribePattern": "a.*", "startingTimestamp": "1",
    "startingOffsetsByTimestamp": '{"a":{"0":1}}', "startingOffsets": '{"a":{"0":1}}',
    "endingTimestamp": "1", "endingOffsetsByTimestamp": '{"a":{"0":1}}',
    "endingOffsets": '{"a":{"0":1}}', "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false", "maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "7",
    "maxTriggerDelay": "3 s", "minPartitions": "7", "maxRecordsPerPartition": "7",
    "kafka.isolation.level": "read_uncommitted",
}  # fmt: skip


@each("name", sorted({*options.HONOURED} - {"topic", "includeHeaders"}))
def test_what_is_honoured_changes_what_is_read(name: str) -> None:
    given = {name: WORTH_SETTING[name]}
    assert parse(given, streaming=False) != parse({}, streaming=False)


def test_extra_columns_are_left_out_as_kafkas_sink_does() -> None:
    outgoing.parse({"path": "x", "topic": "t"}, {"value": "string", "price": "int"})
    batch = pa.RecordBatch.from_pydict({"value": ["a"], "price": [1], "key": ["k"]})
    assert outgoing.as_bytes(batch).to_pydict() == {"value": [b"a"], "key": [b"k"]}


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("250", 250), ("1h", 3_600_000)]
)
def test_the_longest_delay_is_a_time_as_spark_writes_them(text: str, ms: int) -> None:
    assert parse({"maxTriggerDelay": text}, streaming=True).max_trigger_delay_ms == ms


def test_a_micro_batch_waits_for_enough_offsets_or_for_long_enough() -> None:
    clock = ManualClock()
    trigger = Trigger(10, 60_000, clock)
    assert trigger.is_due(1), "the first one does not wait"
    assert not trigger.is_due(9)
    assert trigger.is_due(10)
    clock.advance(59_999)
    assert not trigger.is_due(9)
    clock.advance(1)
    assert trigger.is_due(9)
    assert not trigger.is_due(9), "the delay begins anew"
    assert Trigger(None, 60_000, clock).is_due(0)


def test_how_far_a_query_is_behind_is_counted_over_its_partitions() -> None:
    end = {"a": {"0": "4@mark", "1": 5}}
    latest = {"a": {"0": "10@other", "1": 5}, "b": {"0": "3@other"}}
    for as_reported in (json.dumps(latest), latest):
        found = offsets_behind_latest({"endOffset": end, "latestOffset": as_reported})
        assert found == (0, 6, 3.0)
    fleet = {
        "endOffset": {"f": {"@": "/f.db", **end}, "g": latest},
        "latestOffset": {"f": latest, "@skipped": {"/h.db": "gone"}},
    }
    assert offsets_behind_latest(fleet) == (0, 6, 3.0)
    assert offsets_behind_latest({"endOffset": "null", "latestOffset": None}) == (0, 0, 0.0)
