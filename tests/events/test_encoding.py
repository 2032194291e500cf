"""Every event is written as it always was and comes back from its row as it was, and nothing else does."""

from __future__ import annotations

import json
import sqlite3
import typing
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.events.encoding import _LEAN, SHAPES, Lean, Row, encode, form, read
from eosdb.events.kinds import (
    KINDS,
    Acl,
    AclAdded,
    Event,
    GroupChanged,
    GroupMember,
    LogCleaned,
    MarkerWritten,
    OffsetCommit,
    OffsetsCommitted,
    OffsetsDeleted,
    ScramCredentialSet,
    SinkBatchAppended,
    TopicCreated,
    TransactionStateChanged,
    ViewColumn,
    ViewCreated,
)
from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.values import TopicPartition, TransactionState
from tests.tidy.tree import ROOT


def events(cls: type[Event]) -> st.SearchStrategy[Event]:
    """Any values of the fields' types, which is more than ever happens."""
    fields = {name: st.from_type(hint) for name, hint in typing.get_type_hints(cls).items()}
    if cls is MarkerWritten:
        fields["control"] = st.sampled_from(["COMMIT", "ABORT"])
    return st.builds(cls, **fields)


any_event = st.sampled_from(sorted(KINDS.values(), key=lambda cls: cls.__name__)).flatmap(events)


def detail(event: Event) -> str:
    return encode(event)[-1]


def row(event: Event, detail: str) -> tuple[Any, ...]:
    return (*encode(event)[:-1], detail)


def whole(row: Row) -> Event:
    if isinstance(found := read(row), Lean):
        raise TypeError(f"{found} omits fields")
    return found


@pytest.mark.slow
@given(any_event)
def test_what_was_written_is_read(event: Event) -> None:
    read = whole(encode(event))
    assert read == event
    assert type(read) is type(event)
    assert encode(read) == encode(event)
    assert (*json.loads(detail(event)),) == SHAPES[type(event).__name__][0].names


STATE_CHANGED = TransactionStateChanged(
    timestamp=1, transactional_id="a", producer_id=7, producer_epoch=0, last_producer_epoch=-1,
    previous_producer_id=-1, from_state=None, to_state=TransactionState.PREPARE_EPOCH_FENCE,
    timeout_ms=60_000, start_time_ms=-1,
    partitions=(TopicPartition('a "b"', 0), TopicPartition("ü", 1)), groups=("g", "h"),
)  # fmt: skip
GROUP = GroupChanged(
    timestamp=1, group_id="g", state="Stable", protocol_type="consumer", protocol_name=None,
    generation_id=3, leader="m", deadline_ms=9,
    members=(GroupMember("m", None, "", 10, 20, (("range", "AA=="), ("sticky", "")), "AQ==", True, "", 0),),
)  # fmt: skip
WRITTEN: list[tuple[Event, str]] = [
    (
        STATE_CHANGED,
        '{"producer_id":7,"producer_epoch":0,"last_producer_epoch":-1,"previous_producer_id":-1,'
        '"from_state":null,"to_state":"PrepareEpochFence","timeout_ms":60000,"start_time_ms":-1,'
        '"partitions":[{"topic":"a \\"b\\"","partition":0},{"topic":"ü","partition":1}],'
        '"groups":["g","h"],"next_producer_id":-1,"transaction_version":1}',
    ),
    (
        STATE_CHANGED._replace(from_state=TransactionState.EMPTY, partitions=(), groups=()),
        '{"producer_id":7,"producer_epoch":0,"last_producer_epoch":-1,"previous_producer_id":-1,'
        '"from_state":"Empty","to_state":"PrepareEpochFence","timeout_ms":60000,"start_time_ms":-1,'
        '"partitions":[],"groups":[],"next_producer_id":-1,"transaction_version":1}',
    ),
    (
        GROUP,
        '{"group_id":"g","state":"Stable","protocol_type":"consumer","protocol_name":null,'
        '"generation_id":3,"leader":"m","members":[{"member_id":"m","group_instance_id":null,'
        '"client_id":"","session_timeout_ms":10,"rebalance_timeout_ms":20,'
        '"protocols":[["range","AA=="],["sticky",""]],"assignment":"AQ==","has_joined":true,"client_host":"","owner_lock":0}],'
        '"deadline_ms":9}',
    ),
    (
        TopicCreated(1, "t", 1, 2, 3, {"retention.ms": "5", "ä": '"'}),
        '{"topic_id":1,"first_partition_id":2,"partitions":3,'
        '"config":{"retention.ms":"5","ä":"\\""}}',
    ),
    (
        LogCleaned(1, "t", 0, 1, 5, 2, 77, (1, 2), (), (), -9, 3),
        '{"partition_id":1,"clean_offset":5,"removed":2,"size":77,"horizons":[1,2],'
        '"expired_horizons":[],"unindexed":[],"passed_sum":-9,"removed_sum":3}',
    ),
    (
        OffsetsCommitted(1, "g", (OffsetCommit("t", 0, 5, -1, "\n"),)),
        '{"group_id":"g","offsets":[{"topic":"t","partition":0,"offset":5,"leader_epoch":-1,'
        '"metadata":"\\n"}]}',
    ),
    (
        OffsetsDeleted(1, "g", (TopicPartition("t", 0),), "expired"),
        '{"group_id":"g","partitions":[{"topic":"t","partition":0}],"reason":"expired"}',
    ),
    (SinkBatchAppended(1, "s", 1, ("a",)), '{"sink_id":"s","batch_id":1,"held":["a"]}'),
    (
        ViewCreated(1, "t", "v", (ViewColumn("a", "$.a", "TEXT"),)),
        '{"name":"v","view_columns":[{"name":"a","path":"$.a","type":"TEXT"}]}',
    ),
    (
        AclAdded(1, Acl("User:a", "read", "topic", "*")),
        '{"acl":{"principal":"User:a","operation":"read","resource_type":"topic",'
        '"resource_name":"*","pattern_type":"literal","permission":"allow"}}',
    ),
    (
        ScramCredentialSet(1, ScramCredential("a", "SCRAM-SHA-256", 4096, "AA==", "AQ==", "Ag==")),
        '{"credential":{"user":"a","mechanism":"SCRAM-SHA-256","iterations":4096,"salt":"AA==",'
        '"stored_key":"AQ==","server_key":"Ag=="}}',
    ),
]


@pytest.mark.parametrize(("event", "text"), WRITTEN)
def test_an_event_is_written_as_it_always_was(event: Event, text: str) -> None:
    """To the byte: checksums and the digests of `history` are over the text."""
    assert detail(event) == text
    assert whole(encode(event)) == event


def test_the_events_of_a_released_file_are_written_as_they_stand_there() -> None:
    path = ROOT / "tests/data/schema_0001.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        rows = connection.execute(
            "SELECT kind, timestamp, topic, partition, transactional_id, detail FROM journal"
        ).fetchall()
    full = [found for found in rows if found[0] not in _LEAN]
    assert {found[0] for found in full} == SHAPES.keys() - _LEAN.keys()
    assert [encode(whole(found)) for found in full] == full


@pytest.mark.slow
@given(any_event, st.randoms())
def test_the_order_of_the_members_and_blanks_mean_nothing(event: Event, random: Any) -> None:
    members = list(json.loads(detail(event)).items())
    random.shuffle(members)
    assert whole(row(event, f" {json.dumps(dict(members), indent=1)}  ")) == event


@pytest.mark.slow
@given(any_event)
def test_fields_that_came_later_may_be_absent(event: Event) -> None:
    for name in SHAPES[type(event).__name__][0].names:
        values = json.loads(detail(event))
        del values[name]
        found = row(event, json.dumps(values))
        defaults = type(event)._field_defaults
        if name not in defaults:
            with pytest.raises(TypeError):
                whole(found)
        else:
            assert whole(found) == event._replace(**{name: defaults[name]})


@pytest.mark.slow
@given(any_event, st.data())
def test_a_value_of_the_wrong_type_is_refused(event: Event, data: st.DataObject) -> None:
    values = json.loads(detail(event))
    name = data.draw(st.sampled_from(sorted(values)))
    allowed = form(typing.get_type_hints(type(event))[name]).json_types
    wrong = [v for v in (1, 1.5, "1", None, True, [1], {"a": 1}) if type(v) not in allowed]
    values[name] = data.draw(st.sampled_from(wrong))
    with pytest.raises(TypeError):
        whole(row(event, json.dumps(values)))


@pytest.mark.slow
@given(any_event)
def test_what_no_event_says_is_refused(event: Event) -> None:
    text = detail(event)
    for more in ("", "null", "[]", "{", text + "x", text + text):
        with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
            whole(row(event, more))
    values = {**json.loads(text), "colour": "red"}
    with pytest.raises(TypeError):
        whole(row(event, json.dumps(values)))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"Empty"', '"Full"'),
        ('{"topic":"t","partition":0}', '{"topic":"t"}'),
        ('{"topic":"t","partition":0}', "7"),
        ('["g"]', "[7]"),
    ],
)
def test_a_state_or_a_part_that_does_not_exist_is_refused(good: str, bad: str) -> None:
    event = STATE_CHANGED._replace(
        to_state=TransactionState.EMPTY, partitions=(TopicPartition("t", 0),), groups=("g",)
    )
    text = detail(event)
    assert good in text
    with pytest.raises((KeyError, TypeError)):
        whole(row(event, text.replace(good, bad)))
