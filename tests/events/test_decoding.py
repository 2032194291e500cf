"""Every event comes back from its row as it was, the short way and the long way, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.events import decoding
from eosdb.events.decoding import decode
from eosdb.events.kinds import KINDS, Event, MarkerWritten, TransactionStateChanged
from eosdb.model.values import TransactionState

COLUMNS = ("timestamp", "topic", "partition", "transactional_id")


def events(cls: type[Event]) -> st.SearchStrategy[Event]:
    """Any values of the fields' types, which is more than ever happens."""
    fields = {
        name: st.from_type(hint)
        for name, hint in typing.get_type_hints(cls).items()
        if name in {field.name for field in dataclasses.fields(cls)}
    }
    if cls is MarkerWritten:
        fields["control"] = st.sampled_from(["COMMIT", "ABORT"])
    return st.builds(cls, **fields)


any_event = st.sampled_from(sorted(KINDS.values(), key=lambda cls: cls.__name__)).flatmap(events)


def row(event: Event, detail: str | None = None) -> tuple[Any, ...]:
    written = event.detail() if detail is None else detail
    return (type(event).__name__, event.timestamp, *event.columns(), written)


@given(any_event)
def test_what_was_written_is_read(event: Event) -> None:
    read = decode(*row(event))
    assert read == event
    assert type(read) is type(event)
    assert json.loads(read.detail()) == json.loads(event.detail())


@given(any_event)
def test_both_ways_lead_to_the_same(event: Event) -> None:
    shape = decoding._SHAPES[type(event).__name__]
    columns = (event.timestamp, *event.columns())
    values = json.loads(event.detail())
    assert shape.make(*columns, values) == event
    assert decoding._decode_slowly(shape, columns, event.detail()) == event
    assert decode(*row(event, f" {event.detail()}  ")) == event


@given(any_event)
def test_fields_that_came_later_may_be_absent(event: Event) -> None:
    for field in dataclasses.fields(event):
        values = json.loads(event.detail())
        if field.name not in values:
            continue
        del values[field.name]
        detail = json.dumps(values)
        if field.default is dataclasses.MISSING:
            with pytest.raises(TypeError):
                decode(*row(event, detail))
        else:
            assert decode(*row(event, detail)) == dataclasses.replace(
                event, **{field.name: field.default}
            )


@given(any_event, st.data())
def test_a_value_of_the_wrong_type_is_refused(event: Event, data: st.DataObject) -> None:
    values = json.loads(event.detail())
    name = data.draw(st.sampled_from(sorted(values)))
    allowed = decoding._SHAPES[type(event).__name__].json_types[name]
    wrong = [v for v in (1, 1.5, "1", None, True, [1], {"a": 1}) if type(v) not in allowed]
    values[name] = data.draw(st.sampled_from(wrong))
    with pytest.raises(TypeError):
        decode(*row(event, json.dumps(values)))


@given(any_event)
def test_what_no_event_says_is_refused(event: Event) -> None:
    for more in ("", "null", "[]", "{", event.detail() + "x", event.detail() + event.detail()):
        with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
            decode(*row(event, more))
    values = {**json.loads(event.detail()), "colour": "red"}
    with pytest.raises(TypeError):
        decode(*row(event, json.dumps(values)))


def test_a_state_that_does_not_exist_is_refused() -> None:
    event = TransactionStateChanged(
        timestamp=1, transactional_id="a", producer_id=1, producer_epoch=0,
        last_producer_epoch=-1, previous_producer_id=-1, from_state=None,
        to_state=TransactionState.EMPTY, timeout_ms=1, start_time_ms=-1, partitions=(), groups=(),
    )  # fmt: skip
    with pytest.raises(KeyError):
        decode(*row(event, event.detail().replace("Empty", "Full")))
