"""Events read back: rows of the journal become the values of `events` again.

A replay decodes every event there is, so what is known of a kind beforehand is worked out once. A row
that does not look as it is written today (fields that came later are absent, blanks, a wrong type)
takes the long way, which also finds the words for what is wrong.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import types
import typing
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from eosdb.events import KINDS, Acl, Event, GroupMember, OffsetCommit, ViewColumn
from eosdb.model import TopicPartition, TransactionState

_COLUMNS: Final = ("timestamp", "topic", "partition", "transactional_id")
_PLAIN_TYPES: Final = frozenset({int, str, bool, types.NoneType})
_STATES: Final[dict[str | None, TransactionState | None]] = {
    None: None,
    **{state.label: state for state in TransactionState},
}


def _partitions(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return tuple([TopicPartition(tp["topic"], tp["partition"]) for tp in value])


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "partitions": _partitions,
    "offsets": lambda value: tuple(OffsetCommit(**item) for item in value),
    "groups": tuple,
    "members": lambda value: tuple(
        GroupMember(**{**item, "protocols": tuple(map(tuple, item["protocols"]))}) for item in value
    ),
    "producer_ids": tuple,
    "horizons": tuple,
    "expired_horizons": tuple,
    "from_state": _STATES.__getitem__,
    "to_state": _STATES.__getitem__,
    "acl": lambda value: Acl(**value),
    "view_columns": lambda value: tuple(ViewColumn(**item) for item in value),
}
"""How a field is made of JSON that is not its value already."""


def _json_types(name: str, hint: Any) -> frozenset[type]:
    """What the JSON of a field may be."""
    alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if _PLAIN_TYPES.issuperset(alternatives):
        return frozenset(alternatives)
    if TransactionState in alternatives:
        return frozenset({str, *alternatives} - {TransactionState})
    return frozenset({dict} if name in ("config", "acl") else {list})


def _ignore(event: Event, value: object) -> None:
    """A column that events of the kind do not have."""


class _Shape:
    """What is known of a kind of event beforehand."""

    __slots__ = (
        "cls",
        "columns",
        "fields",
        "json_types",
        "put",
        "readers",
        "size",
        "take",
        "usual",
    )

    def __init__(self, cls: type[Event]) -> None:
        hints = typing.get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        self.cls = cls
        self.columns = tuple(name for name in _COLUMNS if name in names)
        self.fields = tuple(name for name in names if name not in _COLUMNS)
        self.size = len(self.fields)
        self.json_types = {name: _json_types(name, hints[name]) for name in self.fields}
        self.usual = frozenset(itertools.product(*self.json_types.values()))
        self.readers = tuple((n, _READERS[n]) for n in self.fields if n in _READERS)
        self.take: Callable[[Any], tuple[Any, ...]] = (
            itemgetter(*self.fields) if self.size > 1 else self._take_few
        )
        # The slots themselves: a frozen value is made without its __init__, which costs twice as much.
        self.put: tuple[Callable[[Event, Any], None], ...] = tuple(
            getattr(cls, name).__set__ if name in names else _ignore
            for name in (*_COLUMNS, *self.fields)
        )

    def _take_few(self, values: Any) -> tuple[Any, ...]:
        return tuple([values[name] for name in self.fields])


_SHAPES: Final = {kind: _Shape(cls) for kind, cls in KINDS.items()}
_raw_decode: Final = json.JSONDecoder().raw_decode
_new: Final = object.__new__


def decode(
    kind: str,
    timestamp: int,
    topic: str | None,
    partition: int | None,
    transactional_id: str | None,
    detail: str,
) -> Event:
    """The event of a journal row.

    Raises KeyError, TypeError, ValueError or AttributeError for a row that is none.
    """
    shape = _SHAPES[kind]
    columns = (timestamp, topic, partition, transactional_id)
    try:
        values, end = _raw_decode(detail)
        found = shape.take(values)
        if (
            end != len(detail)
            or len(values) != shape.size
            or tuple(map(type, found)) not in shape.usual
        ):
            return _decode_slowly(shape, columns, detail)
        if shape.readers:
            for name, read in shape.readers:
                values[name] = read(values[name])
            found = shape.take(values)
    except (KeyError, TypeError, ValueError):
        return _decode_slowly(shape, columns, detail)
    event = _new(shape.cls)
    for put, value in zip(shape.put, (*columns, *found), strict=True):
        put(event, value)
    return event


def _decode_slowly(shape: _Shape, columns: Sequence[object], detail: str) -> Event:
    values: dict[str, Any] = json.loads(detail)
    for name, value in values.items():
        expected = shape.json_types.get(name)
        if expected is not None and type(value) not in expected:
            raise TypeError(f"{name}: got {value!r:.80}")
    for name, read in shape.readers:
        if name in values:
            values[name] = read(values[name])
    values.update((n, v) for n, v in zip(_COLUMNS, columns, strict=True) if n in shape.columns)
    return shape.cls(**values)
