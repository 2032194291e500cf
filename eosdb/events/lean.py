"""What of an event need not be written, because it follows from the event's columns or from the state
before it: members that have the expected value are left out of its `detail`.

Three kinds are written so, of which every transaction has several. What is expected of one is an event,
too, with NAMED in the place of whatever is always written; whoever records it and whoever folds its row
find the same. Rows from before this, which say everything, mean what they always meant.
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
"""Nothing is expected in this place."""
_NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_COMMIT: Final = "COMMIT"
AGE: Final = "age_ms"
"""How long before a batch was appended its newest record was made, by the record's timestamp."""


class Lean(NamedTuple):
    """A row that leaves something out; `fill_in` makes the event of it."""

    kind: type[Event]
    timestamp: int
    topic: str | None
    partition: int | None
    transactional_id: str | None
    members: Mapping[str, Any]


def kind_of(found: Event | Lean) -> type[Event]:
    return found.kind if isinstance(found, Lean) else type(found)


class Place(NamedTuple):
    """Where the records of an event lie."""

    partition_id: int
    first_offset: int
    last_offset: int


def place(found: Event | Lean) -> Place | None:
    """Where its records lie, which an event that has records always names. Raises KeyError."""
    if isinstance(found, BatchAppended):
        return Place(found.partition_id, found.base_offset, found.last_offset)
    if isinstance(found, MarkerWritten):
        return Place(found.partition_id, found.offset, found.offset)
    if not isinstance(found, Lean) or found.kind is TransactionStateChanged:
        return None
    said = found.members
    first = said["base_offset"] if found.kind is BatchAppended else said["offset"]
    return Place(said["partition_id"], first, first + said.get("count", 1) - 1)


def batch(
    timestamp: int,
    transactional_id: str | None,
    base_offset: int,
    producer: ProducerIdAndEpoch | None,
) -> BatchAppended:
    """The expected batch: one record, made when it was appended, the first of this producer, the
    transaction's (None: not known), or outside of transactions without any producer."""
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
    """The expected marker: a commit's, by the current coordinator, of the transaction's producer (None:
    not known)."""
    id_, epoch = producer or (NAMED, NAMED)
    return MarkerWritten(0, "", 0, None, NAMED, NAMED, id_, epoch, coordinator_epoch, _COMMIT)


class _Plan(NamedTuple):
    """How a row is written of which certain members are named."""

    template: str
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]
    texts: tuple[tuple[int, Callable[[Any], str]], ...]
    age_at: int
    """Which of those picked is written as an age; -1: none."""
    is_whole: bool
    """Whether nothing is left out that every event said when each said everything."""


class _Form:
    """How a kind of event is written lean, and read."""

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
        """The place of a time that is written as how long before the event's it was."""
        names = [AGE if name == since else name for name in fields.names]
        self.places: Final = {name: self.first + i for i, name in enumerate(names)}
        """Of each member, its place among the fields."""
        self._readers: Final = {
            name: (i, self._forms[i].json_types, self._forms[i].value)
            for name, i in self.places.items()
        }
        self.required: Final = fields.required

    def detail(self, event: Sequence[Any], named: tuple[bool, ...]) -> str | None:
        """The detail with the fields that are `named`; None where that is everything."""
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
        """Put what the row says in the place of what is expected.

        Raises KeyError, TypeError or ValueError for a row that is no such event.
        """
        readers = self._readers
        for name, found in row.members.items():
            i, json_types, to_value = readers[name]
            if type(found) not in json_types:
                raise TypeError(f"got {name} {found!r:.200}")
            event[i] = found if to_value is None else to_value(found)
        if AGE in row.members:
            event[self._since] = row.timestamp - event[self._since]


_BATCH: Final = _Form(BatchAppended, "max_timestamp")
_MARKER: Final = _Form(MarkerWritten)
_CHANGE: Final = _Form(TransactionStateChanged)
_FORMS: Final = {form.name: form for form in (_BATCH, _MARKER, _CHANGE)}
_PARTITIONS, _GROUPS = _JOINING = (_CHANGE.places["partitions"], _CHANGE.places["groups"])


# decisions/0026: what is as expected is left out.
def write(event: Event, expected: Event | None = None) -> Row:
    """The event as a row of the journal, without what is as expected."""
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
    """Of partitions and groups only those that join; one partition alone takes the journal's columns."""
    said: Sequence[Any] = event
    topic = partition = None
    for i in _JOINING:
        if named[i]:
            before: Any = expected[i]
            after: Any = event[i]
            joining = tuple([one for one in after if one not in before]) if before else after
            if not joining or (before and _joined(before, joining) != after):
                return encode(event)
            if i == _PARTITIONS and len(joining) == 1:
                ((topic, partition),) = joining
                named[i] = False
            elif before:
                said = (*said[:i], joining, *said[i + 1 :])
    detail = _CHANGE.detail(said, (*named,))
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
    """The event of a row of the journal, as far as the row says it.

    Raises KeyError, TypeError, ValueError or AttributeError for a row that is not an event.
    """
    form = _FORMS.get(kind)
    if form is None:
        return decode(kind, timestamp, topic, partition, transactional_id, detail)
    found = members(detail)
    if type(found) is not dict:
        raise TypeError(f"got {found!r:.80}")
    if len(found) >= len(form.required) and form.required <= found.keys():
        return decode(kind, timestamp, topic, partition, transactional_id, detail)
    return Lean(form.kind, timestamp, topic, partition, transactional_id, found)


def fill_in(row: Lean, expected: Event) -> Event:
    """The event whose row leaves out what is as expected. Raises KeyError, TypeError or ValueError."""
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
