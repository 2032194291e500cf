"""Lean rows: an event's `detail` omits fields that follow from its columns, or from the state before it.

Every transaction has several events of three kinds, which are written this way. The derived values form
an expected event, with NAMED for each field that is always written. The writer and the replay derive the
same expected event. Rows of earlier versions have all fields and are read as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter, ne
from typing import Any, Final, NamedTuple

from eosdb.events.encoding import SHAPES, Row, decode, encode, members
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten, TransactionStateChanged
from eosdb.model.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerIdAndEpoch,
    TopicPartition,
)

NAMED: Final[Any] = object()
"""Marks a field of an expected event without an expected value."""
_NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_COMMIT: Final = "COMMIT"
AGE: Final = "age_ms"
"""The member with the newest record's timestamp, as its age at the append."""


class Lean(NamedTuple):
    """A row that omits fields; `fill_in` turns it into an event."""

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
    """The place of the event's records, stored in every row; None for an event without records. Raises
    KeyError for a damaged row."""
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
    """The expected batch: one record with the time of the append as its timestamp. In a transaction it
    has the transaction's `producer` (None if unknown) and sequence 0, otherwise no producer."""
    is_transactional = transactional_id is not None
    if not is_transactional:
        producer = _NO_PRODUCER
    id_, epoch = producer or (NAMED, NAMED)
    return BatchAppended(
        timestamp, "", 0, transactional_id, NAMED, NAMED, 1, id_, epoch,
        0 if is_transactional else NO_SEQUENCE, is_transactional, timestamp, base_offset, NAMED, NAMED,
        True,
    )  # fmt: skip


def marker(producer: ProducerIdAndEpoch | None, coordinator_epoch: int) -> MarkerWritten:
    """The expected marker: a commit by the current coordinator and this producer (None if unknown)."""
    id_, epoch = producer or (NAMED, NAMED)
    return MarkerWritten(0, "", 0, None, NAMED, NAMED, id_, epoch, coordinator_epoch, _COMMIT)


class _Plan(NamedTuple):
    """How to write a row with a certain set of members."""

    template: str
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]
    texts: tuple[tuple[int, Callable[[Any], str]], ...]
    age_at: int
    """The index, among the picked fields, of the time that is written as an age; -1 if none."""
    is_whole: bool
    """Whether the row has every field that rows of earlier versions always have."""


class _Form:
    """Writes and reads the lean rows of one kind of event."""

    __slots__ = (
        "_forms", "_plans", "_readers", "_since", "columns", "first", "kind", "name", "places",
        "required",
    )  # fmt: skip

    def __init__(self, kind: type[Event], since: str | None = None) -> None:
        self.kind: Final = kind
        self.name: Final = kind.__name__
        fields, self.first, self.columns = SHAPES[self.name]
        self._forms: Final = {self.first + i: of for i, of in enumerate(fields.forms.values())}
        self._plans: Final[dict[tuple[bool, ...], _Plan]] = {}
        self._since: Final = -1 if since is None else kind._fields.index(since)
        """The index of the field whose time is written as an age; -1 if none."""
        names = [AGE if name == since else name for name in fields.names]
        self.places: Final = {name: self.first + i for i, name in enumerate(names)}
        """The index of each member among the event's fields."""
        self._readers: Final = {
            name: (i, self._forms[i].json_types, self._forms[i].value)
            for name, i in self.places.items()
        }
        self.required: Final = fields.required

    def detail(self, event: Sequence[Any], named: tuple[bool, ...]) -> str | None:
        """The detail with the fields in `named`; None if that is all of them."""
        plan = self._plans.get(named)
        if plan is None:
            plan = self._plans[named] = self._plan(named)
        template, pick, texts, age_at, is_whole = plan
        if is_whole:
            return None
        if not texts and age_at < 0:
            return template % pick(event)
        cells = [*pick(event)]
        for at, to_text in texts:
            cells[at] = to_text(cells[at])
        if age_at >= 0:
            cells[age_at] = event[0] - cells[age_at]
        return template % (*cells,)

    def _plan(self, named: tuple[bool, ...]) -> _Plan:
        members = {name: i for name, i in self.places.items() if named[i]}
        written = ",".join([f'"{name}":{self._forms[i].place}' for name, i in members.items()])
        places = [*members.values()]
        texts = [(at, self._forms[i].text) for at, i in enumerate(places)]
        return _Plan(
            f"{{{written}}}",
            itemgetter(*places)
            if len(places) > 1
            else lambda event: tuple([event[i] for i in places]),
            tuple([(at, to_text) for at, to_text in texts if to_text]),
            places.index(self._since) if self._since in places else -1,
            self.required <= members.keys(),
        )

    def fill(self, row: Lean, event: list[Any]) -> None:
        """Replace the expected values in `event` by those of the row. Raises KeyError, TypeError or
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
_FORMS: Final = {form.name: form for form in (_BATCH, _MARKER, _CHANGE)}
_PARTITIONS, _GROUPS = _JOINING = (_CHANGE.places["partitions"], _CHANGE.places["groups"])


# decisions/0026: omits fields with the expected value.
def write(event: Event, expected: Event | None = None) -> Row:
    """The event as a row of the journal, without the fields that have the expected value."""
    if expected is None:
        return encode(event)
    if type(event) is TransactionStateChanged:
        return _write_change(event, expected)
    assert type(event) is BatchAppended or type(event) is MarkerWritten
    form = _BATCH if type(event) is BatchAppended else _MARKER
    detail = form.detail(event, (*map(ne, event, expected),))
    if detail is None:
        return encode(event)
    timestamp, topic, partition, transactional_id = event[:4]
    return form.name, timestamp, topic, partition, transactional_id, detail


def _write_change(event: TransactionStateChanged, expected: Event) -> Row:
    named = (*map(ne, event, expected),)
    if named[_PARTITIONS] or named[_GROUPS]:
        return _write_joining(event, expected, [*named])
    detail = _CHANGE.detail(event, named)
    if detail is None:
        return encode(event)
    return _CHANGE.name, event.timestamp, None, None, event.transactional_id, detail


def _write_joining(event: TransactionStateChanged, expected: Event, named: list[bool]) -> Row:
    """The row of a change with only the added partitions and groups. A single partition goes into the
    columns of the journal."""
    written: Sequence[Any] = event
    topic = partition = None
    for i in _JOINING:
        if named[i]:
            before: Any = expected[i]
            after: Any = event[i]
            joining = tuple([item for item in after if item not in before]) if before else after
            if not joining or (before and _joined(before, joining) != after):
                return encode(event)
            if i == _PARTITIONS and len(joining) == 1:
                ((topic, partition),) = joining
                named[i] = False
            elif before:
                written = (*written[:i], joining, *written[i + 1 :])
    detail = _CHANGE.detail(written, (*named,))
    if detail is None:
        return encode(event)
    return _CHANGE.name, event.timestamp, topic, partition, event.transactional_id, detail


def _joined(before: Iterable[Any], joining: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({*before, *joining}))


def read(
    kind: str,
    timestamp: int,
    topic: str | None,
    partition: int | None,
    transactional_id: str | None,
    detail: str,
) -> Event | Lean:
    """The event of a row of the journal; a Lean if the row omits fields. Raises KeyError, TypeError,
    ValueError or AttributeError for a row that is not an event."""
    form = _FORMS.get(kind)
    if form is None:
        return decode(kind, timestamp, topic, partition, transactional_id, detail)
    values = members(detail)
    if type(values) is not dict:
        raise TypeError(f"got {values!r:.80}")
    if len(values) >= len(form.required) and form.required <= values.keys():
        return decode(kind, timestamp, topic, partition, transactional_id, detail)
    return Lean(form.kind, timestamp, topic, partition, transactional_id, values)


def fill_in(row: Lean, expected: Event) -> Event:
    """The event of a lean row; omitted fields have the expected values. Raises KeyError, TypeError or
    ValueError if the row is not such an event."""
    form = _FORMS[row.kind.__name__]
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
        raise TypeError(f"got {', '.join(row.members) or 'nothing'}, which is too little")
    event: Event = tuple.__new__(row.kind, values)
    return event
