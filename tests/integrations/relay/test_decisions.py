"""What a relay decides, by itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.cli.commands.kafka.relay import prometheus_text
from eosdb.errors import (
    ConfigError,
    EosdbError,
    OffsetOutOfRangeError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from eosdb.integrations.relay import planning, values
from eosdb.integrations.relay.kafka_client import (
    KafkaSettings,
    from_environment,
    from_file,
    kafka_settings,
)
from eosdb.integrations.relay.status import Keeper, PartitionStatus, RelayStatus
from eosdb.integrations.relay.values import Bounds, InterruptedRelayError, RelayPosition
from eosdb.model.values import TopicPartition
from tests.cases import each

P0 = TopicPartition("orders", 0)


Spans = dict[TopicPartition, tuple[int, int]]


def interleaved(
    transactions: list[dict[int, int]],
) -> tuple[list[Spans], dict[TopicPartition, int]]:
    """Transactions by their number of records in each partition, one behind the other; and the ends."""
    at: dict[int, int] = {}
    found: list[Spans] = []
    for counts in transactions:
        spans = {}
        for number, count in counts.items():
            first = at.get(number, 0)
            at[number] = first + count
            spans[TopicPartition("t", number)] = (first, first + count - 1)
        found.append(spans)
    return found, {TopicPartition("t", number): end for number, end in at.items()}


def size(spans: Spans) -> int:
    return sum(last - first + 1 for first, last in spans.values())


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 9), min_size=1), max_size=12),
    st.integers(1, 60),
)
def test_chunk_after_chunk_takes_everything_and_in_part_only_what_does_not_fit(
    transactions: list[dict[int, int]], most: int
) -> None:
    found, ends = interleaved(transactions)
    positions = dict.fromkeys(ends, 0)

    def transactions_in(tp: TopicPartition, start: int, end: int) -> list[Spans]:
        return [s for s in found if tp in s and s[tp][0] < end and s[tp][1] >= start]

    while ranges := planning.next_ranges(positions, ends, most, transactions_in):
        assert all(positions[tp] == start < end <= ends[tp] for tp, (start, end) in ranges.items())
        assert size({tp: (start, end - 1) for tp, (start, end) in ranges.items()}) <= max(most, 5)
        positions |= {tp: end for tp, (_, end) in ranges.items()}
        if max(map(size, found)) <= most:
            for spans in found:
                behind = [first >= positions[tp] for tp, (first, _) in spans.items()]
                before = [last < positions[tp] for tp, (_, last) in spans.items()]
                assert all(behind) or all(before)
    assert positions == ends


def test_pauses_grow_and_stop_growing() -> None:
    found = list(itertools.islice(planning.pauses(), 2_000))
    assert found[:3] == [100, 200, 400]
    assert found == sorted(found)
    assert found[-1] == 30_000


@pytest.mark.parametrize("on_gap", planning.ON_GAP)
def test_a_source_that_lacks_what_was_relayed_stops_it_whatever_is_asked_for(on_gap: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="older copy"):
        planning.start_of(P0, RelayPosition(9, "id"), "id", Bounds(0, 5), on_gap)


def test_positions_of_others_are_passed_over() -> None:
    mine, other = Keeper("relay", "file"), Keeper("other", "file")
    written = [
        other.position(P0, RelayPosition(1, "a")),
        mine.position(P0, RelayPosition(2, "a")),
        mine.claim("run", "mark"),
        mine.position(P0, RelayPosition(3, "b")),
        other.claim("else", ""),
    ]
    standing = mine.standing((record.key, record.value) for record in written)
    assert standing.positions == {P0: RelayPosition(3, "b")}
    assert (standing.run, standing.mark) == ("run", "mark")


@each(
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
    meaning = values.of_kafka(code, "text", "host:1")
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


def test_a_properties_file_has_a_setting_in_each_line(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("# comment\n\nsasl.password = a=b # c\nssl.ca.location=/ca.pem")
    assert from_file(str(file)) == {"sasl.password": "a=b # c", "ssl.ca.location": "/ca.pem"}
    file.write_text("hunter2")
    with pytest.raises(ConfigError, match="x, line 1: expected name=value") as refused:
        from_file(str(file))
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
