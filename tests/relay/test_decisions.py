"""What a relay decides, by itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.errors import (
    ConfigError,
    EosdbError,
    OffsetOutOfRangeError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from eosdb.model.values import TopicPartition
from eosdb.relay import failure, planning
from eosdb.relay.failure import InterruptedRelayError
from eosdb.relay.figures import prometheus_text
from eosdb.relay.kafka_settings import KafkaSettings, from_environment, from_lines, kafka_settings
from eosdb.relay.positions import Keeper
from eosdb.relay.status import PartitionStatus, RelayStatus
from eosdb.relay.values import Bounds, Position

P0 = TopicPartition("orders", 0)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(1, 60))
def test_a_chunk_takes_what_there_is_and_no_more_than_it_may(
    partitions: list[tuple[int, int]], most: int
) -> None:
    positions = {TopicPartition("t", n): at for n, (at, _) in enumerate(partitions)}
    ends = {TopicPartition("t", n): at + count for n, (at, count) in enumerate(partitions)}
    ranges = planning.next_ranges(positions, ends, most)
    assert all(positions[tp] == start < end <= ends[tp] for tp, (start, end) in ranges.items())
    taken = sum(end - start for start, end in ranges.values())
    there = sum(count for _, count in partitions)
    assert taken == min(most, there) or (taken <= len(ranges) and most < len(ranges))


def test_pauses_grow_and_stop_growing() -> None:
    found = list(itertools.islice(planning.pauses(), 2_000))
    assert found[:3] == [100, 200, 400]
    assert found == sorted(found)
    assert found[-1] == 30_000


@pytest.mark.parametrize("on_gap", planning.ON_GAP)
def test_a_source_that_lacks_what_was_relayed_stops_it_whatever_is_asked_for(on_gap: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="older copy"):
        planning.start_of(P0, Position(9, "id"), "id", Bounds(0, 5), on_gap)


def test_positions_of_others_are_passed_over() -> None:
    mine, other = Keeper("relay", "file"), Keeper("other", "file")
    written = [
        other.position(P0, Position(1, "a")),
        mine.position(P0, Position(2, "a")),
        mine.claim("run", "mark"),
        mine.position(P0, Position(3, "b")),
        other.claim("else", ""),
    ]
    standing = mine.standing((record.key, record.value) for record in written)
    assert standing.positions == {P0: Position(3, "b")}
    assert (standing.run, standing.mark) == ("run", "mark")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (29, TopicAuthorizationFailedError),
        (-169, SaslAuthenticationFailedError),
        (-186, ConfigError),
        *(
            (code, InterruptedRelayError)
            for code in (3, 7, 47, 48, 49, 51, 90, -144, -185, -195, 56)
        ),
    ],
)
def test_an_error_of_a_cluster_is_waited_out_or_stops_it(
    code: int, expected: type[EosdbError]
) -> None:
    meaning = failure.of_kafka(code, "text", "host:1")
    assert type(meaning) is expected
    assert "host:1: text" in str(meaning)


@pytest.mark.parametrize(
    "name", ["enable.idempotence", "transactional.id", "isolation.level", "acks", "group.id"]
)
def test_a_setting_that_would_break_the_promise_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Kafka setting {name} may not be given") as refused:
        KafkaSettings({name: "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_settings_come_from_the_environment_and_are_overridden() -> None:
    environment = {"EOSDB_KAFKA_SASL_PASSWORD": "a", "EOSDB_KAFKA_SASL_USERNAME": "u", "PATH": "p"}
    assert from_environment(environment) == {"sasl.password": "a", "sasl.username": "u"}
    assert kafka_settings({"sasl.password": "b"}, environment).values["sasl.password"] == "b"


def test_a_properties_file_has_a_setting_in_each_line() -> None:
    lines = ["# comment\n", "\n", "sasl.password = a=b # c\n", "ssl.ca.location=/ca.pem"]
    assert from_lines(lines, "x") == {"sasl.password": "a=b # c", "ssl.ca.location": "/ca.pem"}
    with pytest.raises(ConfigError, match="x, line 1: expected name=value") as refused:
        from_lines(["hunter2"], "x")
    assert "hunter2" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    settings = KafkaSettings({"sasl.password": "hunter2", "client.id": "client"})
    assert settings.hide('"hunter2" of client') == '"[hidden]" of client'
    assert "hunter2" not in repr(settings)


def test_figures_leave_out_what_is_not_known() -> None:
    partition = PartitionStatus('or"ders', 1, 5, 9, 4, -1, 1_500)
    text = prometheus_text(RelayStatus((partition,), 5, 10, 1, 2, "gone"), "r")
    assert 'eosdb_relay_lag_records{relay="r",topic="or\\"ders",partition="1"} 4\n' in text
    assert 'eosdb_relay_lag_seconds{relay="r",topic="or\\"ders",partition="1"} 1.5\n' in text
    assert "eosdb_relay_lag_bytes{" not in text
    assert 'eosdb_relay_up{relay="r"} 0\n' in text
    assert 'eosdb_relay_failures_total{relay="r"} 2\n' in text
