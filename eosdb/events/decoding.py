"""Events read back: rows of the journal become the values of `events` again.

A replay decodes every event there is, so what is known of a kind beforehand is worked out once. A row
that does not look as it is written today (fields that came later are absent, blanks, a wrong type)
takes the long way, which also finds the words for what is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from eosdb.events.kinds import COLUMNS, KINDS, Acl, Event, GroupMember, OffsetCommit, ViewColumn
from eosdb.model.values import TopicPartition, TransactionState

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
    "held": tuple,
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


class _Shape:
    """What is known of a kind of event beforehand, and `make`, which takes it all for granted."""

    __slots__ = ("cls", "columns", "json_types", "make", "readers")

    def __init__(self, cls: type[Event]) -> None:
        hints = typing.get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        self.cls = cls
        self.columns = [name for name in COLUMNS if name in names]
        self.json_types = {n: _json_types(n, hints[n]) for n in names if n not in COLUMNS}
        self.readers = {n: _READERS[n] for n in self.json_types if n in _READERS}
        self.make = self._maker()

    def _maker(self) -> Callable[..., Event]:
        """A function of the columns and the JSON object.

        It is written out for the kind, as dataclasses do with their methods: a loop over the fields costs
        twice as much, and so does the `__init__` of a frozen class.
        """
        names: dict[str, Any] = {"new": object.__new__, "cls": self.cls}
        lines = [
            f"def make({', '.join(COLUMNS)}, values):",
            f"    if len(values) != {len(self.json_types)}: raise ValueError",
            "    event = new(cls)",
        ]
        for column in self.columns:
            names[f"put_{column}"] = getattr(self.cls, column).__set__
            lines.append(f"    put_{column}(event, {column})")
        for name, json_types in self.json_types.items():
            names[f"put_{name}"] = getattr(self.cls, name).__set__
            (names[f"type_{name}"], *others) = json_types
            names[f"types_{name}"] = json_types
            unlike = f"not in types_{name}" if others else f"is not type_{name}"
            lines.append(f"    value = values[{name!r}]")
            lines.append(f"    if type(value) {unlike}: raise TypeError")
            if name in self.readers:
                names[f"read_{name}"] = self.readers[name]
                lines.append(f"    value = read_{name}(value)")
            lines.append(f"    put_{name}(event, value)")
        lines.append("    return event")
        exec("\n".join(lines), names)
        made: Callable[..., Event] = names["make"]
        return made


_SHAPES: Final = {kind: _Shape(cls) for kind, cls in KINDS.items()}
_scan_once: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""What `raw_decode` calls. Raises StopIteration for what is no JSON."""


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
    try:
        values, end = _scan_once(detail, 0)
        if end == len(detail):
            return shape.make(timestamp, topic, partition, transactional_id, values)
    except (KeyError, TypeError, ValueError, StopIteration):
        pass
    return _decode_slowly(shape, (timestamp, topic, partition, transactional_id), detail)


def _decode_slowly(shape: _Shape, columns: Sequence[object], detail: str) -> Event:
    values: dict[str, Any] = json.loads(detail)
    for name, value in values.items():
        expected = shape.json_types.get(name)
        if expected is not None and type(value) not in expected:
            raise TypeError(f"{name}: got {value!r:.80}")
    for name, read in shape.readers.items():
        if name in values:
            values[name] = read(values[name])
    values.update((n, v) for n, v in zip(COLUMNS, columns, strict=True) if n in shape.columns)
    return shape.cls(**values)
