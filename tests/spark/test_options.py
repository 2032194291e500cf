"""What a reader is asked for, checked without Spark: the Kafka connector's options and their errors."""

from __future__ import annotations

import pytest

from eosdb import EARLIEST, LATEST, TopicPartition
from eosdb.spark_io import outgoing
from eosdb.spark_io.errors import SparkOptionError
from eosdb.spark_io.options import Limit, parse


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
    assert parsed.read_committed
    assert parsed.fail_on_data_loss


def test_names_of_options_have_no_case_and_kafkas_own_mean_nothing() -> None:
    given = {
        "STARTINGOFFSETS": "earliest", "kafka.bootstrap.servers": "x:9092", "pollTimeoutMs": "1",
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


@pytest.mark.parametrize(
    ("given", "streaming", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, False, "expected one of"),
        ({"subscribe": " , "}, False, "expected topics"),
        ({"subscribePattern": "("}, False, "no pattern"),
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
        ({"path": "x", "topic": "t"}, {"key": "string"}, "no column value"),
        ({"path": "x", "topic": "t"}, {"value": "int"}, "got int"),
        ({"path": "x", "topic": "t"}, {"value": "string", "price": "int"}, "column price"),
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
