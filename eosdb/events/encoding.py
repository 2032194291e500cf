"""Encodes events as rows of the journal and decodes them, both derived from the fields of their classes.

An event's first fields are columns of the journal. The values of the others are its `detail`, a JSON array
in the order of the fields (decisions/0096). Named tuples inside are arrays, too. The type of a field
determines its JSON form. A new field is a line in its class; a new type of field needs a `Form`.

Every commit encodes events and a replay decodes all of them, so each class's template and expected types
are computed once.
"""

from __future__ import annotations

import json
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple

from eosdb.events.kinds import COLUMNS, KINDS, BatchAppended, Event, MarkerWritten
from eosdb.model.damage import parsed
from eosdb.model.protocol.members import Member, MemberState, Partitions, by_topic, flat
from eosdb.model.values import TopicPartition, TransactionState

Row = tuple[str, int, str | None, int | None, str | None, str]
"""Kind, timestamp, topic, partition, transactional id and detail."""
_scan_once: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The function that `raw_decode` calls. Raises StopIteration for text that is not JSON."""
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring
_compact: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_make: Final = tuple.__new__
"""Makes a named tuple in half the time that its class takes."""


class Form(NamedTuple):
    """Converts values of a type to JSON and back; `text` or `value` is None if no conversion is needed."""

    json_types: frozenset[type]
    text: Callable[[Any], str] | None = None
    value: Callable[[Any], Any] | None = None
    place: str = "%s"


_STATES: Final = {state.value: state for state in TransactionState}
_NUMBERS: Final = {state: str(number) for number, state in _STATES.items()}
assert len(_STATES) == len(TransactionState), "a state has a number of its own"
_FORMS: Final[dict[Any, Form]] = {
    int: Form(frozenset({int}), place="%d"),
    str: Form(frozenset({str}), _quoted),
    bool: Form(frozenset({bool}), {True: "true", False: "false"}.__getitem__),
    dict[str, str]: Form(frozenset({dict}), _compact),
    TransactionState: Form(frozenset({int}), _NUMBERS.__getitem__, _STATES.__getitem__),
    bytes: Form(frozenset({str}), lambda data: f'"{b64encode(data).decode()}"', b64decode),
    MemberState: Form(frozenset({str}), lambda state: f'"{state.value}"', MemberState),
    Partitions: Form(frozenset({list}), lambda some: _compact(by_topic(some)), flat),
}


def form(hint: Any) -> Form:
    """Return the form of a type: a plain type, a type or None, a tuple of one type, or a NamedTuple."""
    if hint in _FORMS:
        return _FORMS[hint]
    parts = typing.get_args(hint)
    if isinstance(hint, UnionType):
        (part,) = set(parts) - {NoneType}
        return _or_none(form(part))
    if typing.get_origin(hint) is tuple:
        (part,) = set(parts) - {Ellipsis}
        return _array(form(part))
    fields = Fields(hint)
    return Form(frozenset({list}), fields.text, fields.value)


def _or_none(some: Form) -> Form:
    to_text, to_value = some.text or str, some.value
    return Form(
        some.json_types | {NoneType},
        lambda value: "null" if value is None else to_text(value),
        to_value and (lambda value: None if value is None else to_value(value)),
    )


def _array(of: Form) -> Form:
    to_text, to_value, json_types = of.text or str, of.value, of.json_types

    def value(items: object) -> tuple[Any, ...]:
        if type(items) is not list:
            raise TypeError(f"not a JSON array: {items!r:.80}")
        if to_value:
            return tuple([to_value(item) for item in items])
        if not json_types.issuperset(map(type, items)):
            raise TypeError(f"an item has the wrong type: {items!r:.80}")
        return tuple(items)

    return Form(frozenset({list}), lambda values: f"[{','.join(map(to_text, values))}]", value)


class Fields:
    """The fields of a NamedTuple, from index `first` on, as a JSON array without defaults at its end."""

    __slots__ = ("_cls", "_defaults", "_ends", "_template", "_texts", "_types", "_values", "names")

    def __init__(self, cls: Any, first: int = 0) -> None:
        hints = typing.get_type_hints(cls)
        self.names: Final[tuple[str, ...]] = cls._fields[first:]
        forms = {name: form(hints[name]) for name in self.names}
        self._cls = cls
        self._template = f"[{','.join([of.place for of in forms.values()])}]"
        self._texts = [(i, of.text) for i, of in enumerate(forms.values()) if of.text]
        self._values = [(i, of.value) for i, of in enumerate(forms.values()) if of.value]
        self._types = frozenset(product(*[of.json_types for of in forms.values()]))
        defaults = [(forms[n].text or str)(value) for n, value in cls._field_defaults.items()]
        self._defaults = [*map(parsed, defaults)]
        self._ends = [f",{default}]" for default in reversed(defaults)]
        assert len(defaults) <= len(self.names), "a column has no default"

    def text(self, values: Iterable[Any]) -> str:
        cells = [*values]
        for i, to_text in self._texts:
            cells[i] = to_text(cells[i])
        made = self._template % (*cells,)
        for end in self._ends:
            if not made.endswith(end):
                break
            made = made[: -len(end)] + "]"
        return made

    def value(self, values: object, before: Sequence[object] = ()) -> Any:
        """Build the NamedTuple from the values `before` and the JSON array. Raises KeyError, TypeError or
        ValueError if they do not fit the fields."""
        if type(values) is not list:
            raise TypeError(f"not a JSON array: {values!r:.80}")
        cells = [*values]
        if len(cells) < len(self.names):
            cells += self._defaults[len(cells) - len(self.names) :]
        if (*map(type, cells),) not in self._types:
            raise TypeError(f"got {values!r:.200}, expected {', '.join(self.names)}")
        for i, to_value in self._values:
            cells[i] = to_value(cells[i])
        return _make(self._cls, (*before, *cells))


def _shape(kind: type[Event]) -> tuple[Fields, int, Callable[[Sequence[Any]], Sequence[Any]]]:
    """Return the fields of an event's detail, the number of journal columns that it uses, and a function
    that picks their values from all columns."""
    places = [i for i, name in enumerate(COLUMNS) if name in kind._fields]
    first = len(places)
    assert kind._fields[:first] == tuple([COLUMNS[i] for i in places]), f"{kind}: columns first"
    pick = itemgetter(slice(first)) if places == [*range(first)] else itemgetter(*places)
    return Fields(kind, first), first, pick


SHAPES: Final = {kind: _shape(cls) for kind, cls in KINDS.items()}


def encode(event: Event) -> Row:
    """Encode the event as a row of the journal."""
    kind = type(event).__name__
    detail, first, _ = SHAPES[kind]
    return (
        kind,
        event.timestamp,
        getattr(event, "topic", None),
        getattr(event, "partition", None),
        getattr(event, "transactional_id", None),
        detail.text(event[first:]),
    )


def members(detail: str) -> Any:
    try:
        value, end = _scan_once(detail, 0)
    except StopIteration:
        end = -1
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value if end == len(detail) else parsed(detail)  # Not JSON, or followed by blanks.


def _text_of(hint: Any) -> Callable[[Any], str]:
    return form(hint).text or str


partitions_json: Final[Callable[[Iterable[TopicPartition]], str]] = _text_of(
    tuple[TopicPartition, ...]
)
"""Partitions as a JSON array of arrays of topic and partition."""
texts_json: Final[Callable[[Iterable[str]], str]] = _text_of(tuple[str, ...])
"""Texts as a JSON array."""
members_json: Final[Callable[[Iterable[Member]], str]] = _text_of(tuple[Member, ...])
"""The members of a group, as events have them."""
_to_members: Final = form(tuple[Member, ...]).value


def members_of(text: str) -> tuple[Member, ...]:
    """The members of `members_json`. Raises KeyError, TypeError, ValueError or AttributeError."""
    assert _to_members is not None
    stored: tuple[Member, ...] = _to_members(members(text))
    return stored


class Place(NamedTuple):
    """The partition and offsets of an event's records."""

    partition_id: int
    first_offset: int
    last_offset: int


def place(event: Event) -> Place | None:
    """Return the partition and offsets of the event's records; None if it has none."""
    if isinstance(event, BatchAppended):
        return Place(event.partition_id, event.base_offset, event.last_offset)
    if isinstance(event, MarkerWritten):
        return Place(event.partition_id, event.offset, event.offset)
    return None


def read(row: Sequence[Any]) -> Event:
    """Decode a row to its event. Raises KeyError, TypeError or ValueError for any other row."""
    kind, *columns, detail = row
    fields, _, pick = SHAPES[kind]
    event: Event = fields.value(members(detail), pick(columns))
    return event
