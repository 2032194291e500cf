"""Encodes events as rows of the journal and decodes them, both derived from the fields of their classes.

An event's first fields are columns of the journal. The others are its `detail`, a JSON object with one
member per field, in order. The type of a field determines its JSON form. A new field is a line in its
class; a new type of field needs a `Form`.

Every commit encodes events and a replay decodes all of them, so each class's template and expected types
are computed once.

Every transaction has several events of three kinds, so their rows are lean: `detail` omits fields that can
be derived from the row's columns or the state before the row. Writer and replay derive the same expected
event; each field that is always written is NAMED in it. A row with all fields is whole.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product, repeat
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple

from eosdb.events.kinds import (
    COLUMNS,
    KINDS,
    BatchAppended,
    Event,
    MarkerWritten,
    TransactionStateChanged,
)
from eosdb.model.damage import parsed
from eosdb.model.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionState,
)
from eosdb.native import accelerator

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
    values: Callable[[list[Any]], tuple[Any, ...]] | None = None
    """Converts a list of values, faster than `value` for each."""


def _either(values: Mapping[Any, str | None]) -> Form:
    """Return the form of an enumeration; `values` has the name of each value."""
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
            raise TypeError(f"not a JSON array: {items!r:.80}")
        if not items:
            return ()
        if to_values:
            return to_values(items)
        if to_value:
            return tuple([to_value(item) for item in items])
        if not json_types.issuperset(map(type, items)):
            raise TypeError(f"an item has the wrong type: {items!r:.80}")
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
        """The fields without a default; a row that lacks one is lean."""
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

    def value(self, members: Mapping[str, Any], before: Sequence[object] = ()) -> Any:
        """Build the NamedTuple from the values `before` and the JSON object's members. Raises KeyError,
        TypeError, ValueError or AttributeError if they do not fit its fields."""
        if (*members,) != self.names:
            members = self._in_order(members)
        cells = [*members.values()]
        if (*map(type, cells),) not in self._types:
            raise TypeError(f"a member has the wrong type: {members!r:.200}")
        for i, to_value in self._values:
            cells[i] = to_value(cells[i])
        return _make(self._cls, (*before, *cells))

    def values(self, objects: list[Any]) -> tuple[Any, ...]:
        """Do `value` for each JSON object. If no field needs a conversion, types are not checked."""
        if self._values:
            return tuple(map(self.value, objects))
        return tuple(map(_make, repeat(self._cls), map(self._pick, objects)))

    def _in_order(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the members in the order of the fields, with defaults for fields that rows may lack."""
        of_all = {**self._defaults, **members}
        if of_all.keys() != {*self.names}:
            raise TypeError(f"got {', '.join(members)}, expected {', '.join(self.names)}")
        return {name: of_all[name] for name in self.names}


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
    """Encode the event as a row of the journal with all fields."""
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
"""Partitions as a JSON array of objects with `topic` and `partition`."""
texts_json: Final[Callable[[Iterable[str]], str]] = _text_of(tuple[str, ...])
"""Texts as a JSON array."""


NAMED: Final[Any] = object()
"""Marks a field that has no expected value, in an expected event."""
_NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_COMMIT: Final = "COMMIT"
AGE: Final = "age_ms"
"""The JSON member with the newest record's age at the append, in place of its timestamp."""


class Lean(NamedTuple):
    """A row that omits fields. `fill_in` completes it to an event."""

    kind: type[Event]
    timestamp: int
    topic: str | None
    partition: int | None
    transactional_id: str | None
    members: Mapping[str, Any]


def kind_of(row: Event | Lean) -> type[Event]:
    return row.kind if isinstance(row, Lean) else type(row)


class Place(NamedTuple):
    """The partition and offsets of an event's records."""

    partition_id: int
    first_offset: int
    last_offset: int


def place(row: Event | Lean) -> Place | None:
    """Return the partition and offsets of the event's records; None if it has none. Even lean rows store
    these. Raises KeyError for a damaged row."""
    if isinstance(row, BatchAppended):
        return Place(row.partition_id, row.base_offset, row.last_offset)
    if isinstance(row, MarkerWritten):
        return Place(row.partition_id, row.offset, row.offset)
    if not isinstance(row, Lean) or row.kind is TransactionStateChanged:
        return None
    members = row.members
    first = members["base_offset"] if row.kind is BatchAppended else members["offset"]
    return Place(members["partition_id"], first, first + members.get("count", 1) - 1)


def batch(
    timestamp: int,
    transactional_id: str | None,
    base_offset: int,
    producer: ProducerIdAndEpoch | None,
) -> BatchAppended:
    """Return the expected batch: one record with the time of the append as its timestamp. In a transaction
    it has `producer` (None if unknown) and sequence 0, otherwise no producer."""
    is_transactional = transactional_id is not None
    if not is_transactional:
        producer = _NO_PRODUCER
    id_, epoch = producer or (NAMED, NAMED)
    return _make(BatchAppended, (
        timestamp, "", 0, transactional_id, NAMED, NAMED, 1, id_, epoch,
        0 if is_transactional else NO_SEQUENCE, is_transactional, timestamp, base_offset, NAMED, NAMED,
    ))  # fmt: skip


def marker(producer: ProducerIdAndEpoch | None, coordinator_epoch: int) -> MarkerWritten:
    """Return the expected marker: a commit by the current coordinator and `producer` (None if unknown)."""
    id_, epoch = producer or (NAMED, NAMED)
    expected = (0, "", 0, None, NAMED, NAMED, id_, epoch, coordinator_epoch, _COMMIT)
    return _make(MarkerWritten, expected)


class _Form:
    """Writes and reads the lean rows of one kind of event."""

    __slots__ = (
        "_readers", "_since", "_writer", "columns", "first", "kind", "name", "required",
    )  # fmt: skip

    def __init__(self, kind: type[Event], since: str | None = None) -> None:
        self.kind: Final = kind
        self.name: Final = kind.__name__
        fields, self.first, self.columns = SHAPES[self.name]
        self._since: Final = -1 if since is None else kind._fields.index(since)
        """The index of the timestamp that is stored as an age; -1 if none."""
        names = [AGE if name == since else name for name in fields.names]
        forms = fields.forms.values()
        self._readers: Final = {
            name: (self.first + i, of.json_types, of.value)
            for i, (name, of) in enumerate(zip(names, forms, strict=True))
        }
        self.required: Final = fields.required
        self._writer: Final = (
            self.first,
            self._since,
            tuple([f'"{name}":' for name in names]),
            tuple([of.text for of in forms]),
            bytes([name in self.required for name in fields.names]),
        )
        """The index of the first field, `_since`, and for each field its name as JSON, the function that
        makes its text (None: a number), and whether every whole row must have it."""

    def detail(self, event: Sequence[Any], expected: Sequence[Any]) -> str | None:
        """The detail with the fields that are not as expected; None if none is left out that every whole
        row must have."""
        if (module := accelerator.rows()) is not None:
            try:
                made: str | None = module.lean(self._writer, event, expected)
                return made
            except (TypeError, ValueError, OverflowError):
                pass  # decisions/0060: the Python code below raises the exact error.
        first, since, names, texts, required = self._writer
        members, is_whole = list[str](), since < 0
        for at, (name, to_text) in enumerate(zip(names, texts, strict=True)):
            value = event[first + at]
            if value == expected[first + at]:
                is_whole = is_whole and not required[at]
            elif to_text is None:
                members.append(f"{name}{event[0] - value if first + at == since else value:d}")
            else:
                members.append(name + to_text(value))
        return None if is_whole else f"{{{','.join(members)}}}"

    def fill(self, row: Lean, event: list[Any]) -> None:
        """Replace the expected values in `event` by the row's values. Raises KeyError, TypeError or
        ValueError for a row that is not such an event."""
        readers = self._readers
        for name, value in row.members.items():
            i, json_types, to_value = readers[name]
            if type(value) not in json_types:
                raise TypeError(f"got {name} {value!r:.200}")
            event[i] = value if to_value is None else to_value(value)
        if AGE in row.members:
            event[self._since] = row.timestamp - event[self._since]


_BATCH: Final = _Form(BatchAppended, "max_timestamp")
_MARKER: Final = _Form(MarkerWritten)
_CHANGE: Final = _Form(TransactionStateChanged)
_LEAN: Final = {form.name: form for form in (_BATCH, _MARKER, _CHANGE)}
_PARTITIONS, _GROUPS = _JOINING = (*map(_CHANGE.kind._fields.index, ("partitions", "groups")),)


# decisions/0026: the row omits each value that equals the expected one, because a reader can compute it.
def write(event: Event, expected: Event | None = None) -> Row:
    """Encode the event as a row of the journal. Omits the fields that equal those of `expected`."""
    if expected is None:
        return encode(event)
    if type(event) is TransactionStateChanged:
        return _write_change(event, expected)
    assert type(event) is BatchAppended or type(event) is MarkerWritten
    form = _BATCH if type(event) is BatchAppended else _MARKER
    detail = form.detail(event, expected)
    if detail is None:
        return encode(event)
    timestamp, topic, partition, transactional_id = event[:4]
    return form.name, timestamp, topic, partition, transactional_id, detail


def _write_change(event: TransactionStateChanged, expected: Event) -> Row:
    if event[_PARTITIONS] != expected[_PARTITIONS] or event[_GROUPS] != expected[_GROUPS]:
        return _write_joining(event, expected)
    detail = _CHANGE.detail(event, expected)
    if detail is None:
        return encode(event)
    return _CHANGE.name, event.timestamp, None, None, event.transactional_id, detail


def _write_joining(event: TransactionStateChanged, expected: Event) -> Row:
    """Encode a change to an open transaction with only the added partitions and groups. A single added
    partition is stored in the columns `topic` and `partition`."""
    written: list[Any] = [*event]
    topic = partition = None
    for i in _JOINING:
        before: Any = expected[i]
        after: Any = event[i]
        if after != before:
            joining = tuple([item for item in after if item not in before]) if before else after
            if not joining or (before and _joined(before, joining) != after):
                return encode(event)
            if i == _PARTITIONS and len(joining) == 1:
                ((topic, partition),) = joining
                written[i] = before
            else:
                written[i] = joining
    detail = _CHANGE.detail(tuple(written), expected)
    if detail is None:
        return encode(event)
    return _CHANGE.name, event.timestamp, topic, partition, event.transactional_id, detail


def _joined(before: Iterable[Any], joining: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({*before, *joining}))


def read(row: Sequence[Any]) -> Event | Lean:
    """Decode a row to its event, or to a Lean if the row omits fields. Raises KeyError, TypeError,
    ValueError or AttributeError for a row that is not an event."""
    kind, *columns, detail = row
    fields, _, pick = SHAPES[kind]
    values, form = members(detail), _LEAN.get(kind)
    if form is not None:
        if type(values) is not dict:
            raise TypeError(f"not a JSON object: {values!r:.80}")
        if len(values) < len(form.required) or not form.required <= values.keys():
            return _make(Lean, (form.kind, *columns, values))
    event: Event = fields.value(values, pick(columns))
    return event


def fill_in(row: Lean, expected: Event) -> Event:
    """Complete a lean row to an event: omitted fields get the expected values. Raises KeyError, TypeError
    or ValueError if the row is not such an event."""
    form = _LEAN[row.kind.__name__]
    values: list[Any] = [*expected]
    form.fill(row, values)
    values[: form.first] = form.columns(row[1:5])
    if form is _CHANGE:
        if row.topic is not None and row.partition is not None:
            values[_PARTITIONS] = (TopicPartition(row.topic, row.partition),)
        for i in _JOINING:
            before: Any = expected[i]
            if before and values[i] is not before:
                values[i] = _joined(before, values[i])
    if NAMED in values:
        raise TypeError(f"got only {', '.join(row.members) or 'nothing'}, expected more fields")
    event: Event = tuple.__new__(row.kind, values)
    return event
