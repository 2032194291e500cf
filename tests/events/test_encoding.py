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

from eosdb.events.encoding import SHAPES, encode, form, read
from eosdb.events.kinds import (
    KINDS,
    Acl,
    AclAdded,
    Event,
    GroupChanged,
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
from eosdb.model.protocol.members import Assignor, Member, MemberState, Share
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


@pytest.mark.slow
@given(any_event)
def test_what_was_written_is_read(event: Event) -> None:
    found = read(encode(event))
    assert found == event
    assert type(found) is type(event)
    assert encode(found) == encode(event)


STATE_CHANGED = TransactionStateChanged(
    timestamp=1, transactional_id="a", producer_id=7, producer_epoch=0, last_producer_epoch=-1,
    previous_producer_id=-1, from_state=None, to_state=TransactionState.PREPARE_EPOCH_FENCE,
    timeout_ms=60_000, start_time_ms=-1,
    partitions=(TopicPartition('a "b"', 0), TopicPartition("ü", 1)), groups=("g", "h"),
)  # fmt: skip
GROUP = GroupChanged(
    1, "g", "classic", "Stable", "consumer", None, 3, "m", 9, 0, 0, removed=("n",),
    members=(Member(
        "m", None, "", "", 10, 20, 0, (Assignor("range", b"\0"), Assignor("sticky", b"")), b"\1",
        shares=(Share(3, frozenset({(2, 1), (1, 0), (2, 0)})),), state=MemberState.UNRELEASED_PARTITIONS,
    ),),
)  # fmt: skip
WRITTEN: list[tuple[Event, str]] = [
    (
        STATE_CHANGED,
        '[7,0,-1,-1,null,7,60000,-1,[["a \\"b\\"",0],["ü",1]],["g","h"]]',
    ),
    (
        STATE_CHANGED._replace(from_state=TransactionState.EMPTY, partitions=(), groups=()),
        "[7,0,-1,-1,0,7,60000,-1,[],[]]",
    ),
    (STATE_CHANGED._replace(next_producer_id=8), detail(STATE_CHANGED)[:-1] + ",1,8]"),
    (
        GROUP,
        '["g","classic","Stable","consumer",null,3,"m",9,0,0,[["m",null,"","",10,20,0,[["range","AA=="],'
        '["sticky",""]],"AQ==",true,[],0,0,[[3,[[1,[0]],[2,[0,1]]]]],[],"UnreleasedPartitions"]],["n"]]',
    ),
    (
        TopicCreated(1, "t", 1, 2, 3, {"retention.ms": "5", "ä": '"'}),
        '[1,2,3,{"retention.ms":"5","ä":"\\""}]',
    ),
    (LogCleaned(1, "t", 0, 1, 5, 2, 77, (1, 2), (), (), -9, 3), "[1,5,2,77,[1,2],[],[],-9,3]"),
    (OffsetsCommitted(1, "g", (OffsetCommit("t", 0, 5, -1, "\n"),)), '["g",[["t",0,5,-1,"\\n"]]]'),
    (OffsetsDeleted(1, "g", (TopicPartition("t", 0),), "expired"), '["g",[["t",0]],"expired"]'),
    (SinkBatchAppended(1, "s", 1, ("a",)), '["s",1,["a"]]'),
    (ViewCreated(1, "t", "v", (ViewColumn("a", "$.a", "TEXT"),)), '["v",[["a","$.a","TEXT"]]]'),
    (AclAdded(1, Acl("User:a", "read", "topic", "*")), '[["User:a","read","topic","*"]]'),
    (
        AclAdded(1, Acl("User:a", "read", "topic", "*", permission="deny")),
        '[["User:a","read","topic","*","literal","deny"]]',
    ),
    (
        ScramCredentialSet(1, ScramCredential("a", "SCRAM-SHA-256", 4096, "AA==", "AQ==", "Ag==")),
        '[["a","SCRAM-SHA-256",4096,"AA==","AQ==","Ag=="]]',
    ),
]


@pytest.mark.parametrize(("event", "text"), WRITTEN)
def test_an_event_is_written_as_it_always_was(event: Event, text: str) -> None:
    """To the byte: checksums and the digests of `history` are over the text."""
    assert detail(event) == text
    assert read(encode(event)) == event


def test_the_events_of_a_released_file_are_written_as_they_stand_there() -> None:
    path = ROOT / "tests/data/schema_0001.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        rows = connection.execute(
            "SELECT kind, timestamp, topic, partition, transactional_id, detail FROM eosdb_journal"
        ).fetchall()
    assert {found[0] for found in rows} == SHAPES.keys()
    assert [encode(read(found)) for found in rows] == rows


@pytest.mark.slow
@given(any_event)
def test_blanks_mean_nothing(event: Event) -> None:
    text = json.dumps(json.loads(detail(event)), indent=1)
    assert read(row(event, f" {text}  ")) == event


@pytest.mark.slow
@given(any_event)
def test_fields_that_came_later_may_be_absent(event: Event) -> None:
    names, defaults = SHAPES[type(event).__name__][0].names, type(event)._field_defaults
    values = json.loads(detail(event))
    for count in range(len(values)):
        absent, found = names[count:], row(event, json.dumps(values[:count]))
        if absent and not defaults.keys() >= {*absent}:
            with pytest.raises(TypeError):
                read(found)
        else:
            assert read(found) == event._replace(**{name: defaults[name] for name in absent})


@pytest.mark.slow
@given(any_event, st.data())
def test_a_value_of_the_wrong_type_is_refused(event: Event, data: st.DataObject) -> None:
    values, names = json.loads(detail(event)), SHAPES[type(event).__name__][0].names
    place = data.draw(st.sampled_from(range(len(values))))
    allowed = form(typing.get_type_hints(type(event))[names[place]]).json_types
    wrong = [v for v in (1, 1.5, "1", None, True, [1], {"a": 1}) if type(v) not in allowed]
    values[place] = data.draw(st.sampled_from(wrong))
    with pytest.raises(TypeError):
        read(row(event, json.dumps(values)))


@pytest.mark.slow
@given(any_event)
def test_what_no_event_says_is_refused(event: Event) -> None:
    text = detail(event)
    for more in ("", "null", "{}", "[", '"x"', text + "x", text + text):
        with pytest.raises((TypeError, ValueError, KeyError)):
            read(row(event, more))
    full = [*json.loads(text), *[1] * len(type(event)._fields)]
    with pytest.raises(TypeError):
        read(row(event, json.dumps(full)))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("null,0,", "null,77,"),
        ('["t",0]', '["t"]'),
        ('["t",0]', '["t",0,1]'),
        ('["t",0]', '"t0"'),
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
        read(row(event, text.replace(good, bad)))
