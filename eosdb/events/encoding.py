"""Encodes events as rows of the journal and decodes them, both derived from the fields of their classes.

An event's first fields are columns of the journal. The others are its `detail`, a JSON object with one
member per field, in order. The type of a field determines its JSON form. A new field is a line in its
class; a new type of field needs a `Form`.

Every commit encodes events and a replay decodes all of them, so each class's template and expected types
are computed once. `lean` decides which fields a row may omit.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Mapping
from itertools import product, repeat
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple

from eosdb.events.kinds import COLUMNS, KINDS, Event
from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition, TransactionState

Row = tuple[str, int, str | None, int | None, str | None, str]
"""Kind, timestamp, topic, partition, transactional id and detail."""
_scan_once: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The function behind `raw_decode`. Raises StopIteration for text that is not JSON."""
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring
_compact: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_make: Final = tuple.__new__


class Form(NamedTuple):
    """Converts values of a type to JSON and back; `text` or `value` is None if no conversion is needed."""

    json_types: frozenset[type]
    text: Callable[[Any], str] | None = None
    value: Callable[[Any], Any] | None = None
    place: str = "%s"
    values: Callable[[list[Any]], tuple[Any, ...]] | None = None
    """Converts a list of values, faster than `value` for each."""


def _either(values: Mapping[Any, str | None]) -> Form:
    """The form of an enumeration: its values, and the name of each."""
    texts = {value: "null" if name is None else _quoted(name) for value, name in values.items()}
    json_types = frozenset(map(type, values.values()))
    return Form(json_types, texts.__getitem__, {n: v for v, n in values.items()}.__getitem__)


_STATES: Final = {state: state.label for state in TransactionState}
_FORMS: Final[dict[Any, Form]] = {
    int: Form(frozenset({int}), place="%d"),
    str: Form(frozenset({str}), _quoted),
    bool: Form(frozenset({bool}), {True: "true", False: "false"}.__getitem__),
    dict[str, str]: Form(frozenset({dict}), _compact),
    TransactionState: _either(_STATES),
    TransactionState | None: _either({None: None, **_STATES}),
}


def form(hint: Any) -> Form:
    """The form of a type: a plain type, a type or None, a tuple of one type, or a NamedTuple."""
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
    return Form(frozenset({dict}), fields.text, fields.value, values=fields.values)


def _or_none(some: Form) -> Form:
    to_text, to_value = some.text or str, some.value
    return Form(
        some.json_types | {NoneType},
        lambda value: "null" if value is None else to_text(value),
        to_value and (lambda value: None if value is None else to_value(value)),
    )


def _array(of: Form) -> Form:
    to_text, to_value, json_types = of.text or str, of.value, of.json_types
    to_values = of.values

    def value(items: object) -> tuple[Any, ...]:
        if type(items) is not list:
            raise TypeError(f"got {items!r:.80}")
        if not items:
            return ()
        if to_values:
            return to_values(items)
        if to_value:
            return tuple([to_value(item) for item in items])
        if not json_types.issuperset(map(type, items)):
            raise TypeError(f"got {items!r:.80}")
        return tuple(items)

    return Form(frozenset({list}), lambda values: f"[{','.join(map(to_text, values))}]", value)


class Fields:
    """The fields of a NamedTuple, from index `first` on, as a JSON object."""

    __slots__ = (
        "_cls", "_defaults", "_pick", "_template", "_texts", "_types", "_values", "forms", "names",
        "required",
    )  # fmt: skip

    def __init__(self, cls: Any, first: int = 0) -> None:
        hints = typing.get_type_hints(cls)
        self.names: Final[tuple[str, ...]] = cls._fields[first:]
        forms = {name: form(hints[name]) for name in self.names}
        members = [f'"{name}":{of.place}' for name, of in forms.items()]
        self._cls = cls
        self._pick = itemgetter(*self.names)
        self._template = "{" + ",".join(members) + "}"
        self._texts = [(i, of.text) for i, of in enumerate(forms.values()) if of.text]
        self._values = [(i, of.value) for i, of in enumerate(forms.values()) if of.value]
        self._types = frozenset(product(*[of.json_types for of in forms.values()]))
        self.forms: Final = forms
        self.required: Final = frozenset(forms) - cls._field_defaults.keys()
        """The fields without default: rows that are not lean always have them."""
        self._defaults = {
            name: parsed((forms[name].text or str)(default))
            for name, default in cls._field_defaults.items()
            if name in forms
        }

    def text(self, values: Iterable[Any]) -> str:
        cells = [*values]
        for i, to_text in self._texts:
            cells[i] = to_text(cells[i])
        return self._template % (*cells,)

    def value(self, members: Mapping[str, Any], before: tuple[object, ...] = ()) -> Any:
        """The NamedTuple of the values `before` and the JSON object's members. Raises KeyError,
        TypeError, ValueError or AttributeError if they do not fit its fields."""
        if (*members,) != self.names:
            members = self._in_order(members)
        cells = [*members.values()]
        if (*map(type, cells),) not in self._types:
            raise TypeError(f"got {members!r:.200}")
        for i, to_value in self._values:
            cells[i] = to_value(cells[i])
        return _make(self._cls, (*before, *cells))

    def values(self, objects: list[Any]) -> tuple[Any, ...]:
        """`value` for each JSON object; without conversions only the presence of members is checked."""
        if self._values:
            return tuple(map(self.value, objects))
        return tuple(map(_make, repeat(self._cls), map(self._pick, objects)))

    def _in_order(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """The members in the order of the fields, with defaults for later fields."""
        of_all = {**self._defaults, **members}
        if of_all.keys() != {*self.names}:
            raise TypeError(f"got {', '.join(members)}, expected {', '.join(self.names)}")
        return {name: of_all[name] for name in self.names}


def _shape(kind: type[Event]) -> tuple[Fields, int, Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
    """The shape of a kind of event: the fields of its detail, the number of its columns of the journal,
    and a function that picks these from all columns."""
    places = [i for i, name in enumerate(COLUMNS) if name in kind._fields]
    first = len(places)
    assert kind._fields[:first] == tuple([COLUMNS[i] for i in places]), f"{kind}: columns first"
    pick = itemgetter(slice(first)) if places == [*range(first)] else itemgetter(*places)
    return Fields(kind, first), first, pick


SHAPES: Final = {kind: _shape(cls) for kind, cls in KINDS.items()}


def encode(event: Event) -> Row:
    """The event as a row of the journal with all its fields."""
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


def decode(
    kind: str,
    timestamp: int,
    topic: str | None,
    partition: int | None,
    transactional_id: str | None,
    detail: str,
) -> Event:
    """The event of a row of the journal. Raises KeyError, TypeError, ValueError or AttributeError for a
    row that is not an event."""
    fields, _, pick = SHAPES[kind]
    columns = pick((timestamp, topic, partition, transactional_id))
    event: Event = fields.value(members(detail), columns)
    return event


def members(detail: str) -> Any:
    try:
        value, end = _scan_once(detail, 0)
    except StopIteration:
        end = -1
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value if end == len(detail) else parsed(detail)  # Blanks around it, or no JSON.


def _text_of(hint: Any) -> Callable[[Any], str]:
    return form(hint).text or str


partitions_json: Final[Callable[[Iterable[TopicPartition]], str]] = _text_of(
    tuple[TopicPartition, ...]
)
"""Partitions as a JSON array of objects with `topic` and `partition`."""
texts_json: Final[Callable[[Iterable[str]], str]] = _text_of(tuple[str, ...])
"""Texts as a JSON array."""
