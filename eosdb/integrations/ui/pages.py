"""The pages: each queries the database and renders a template. Read-only.

Records and the transactional ids used last come from the documented views, as any user may query them.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from eosdb.admin.timeline import svg
from eosdb.admin.timeline.timeline import BY, PartitionTimeline, TransactionSpan
from eosdb.database import Database
from eosdb.errors import EosdbError
from eosdb.integrations.ui.watching import Watcher
from eosdb.model import words
from eosdb.model.clock import format_time_ms, parse_time_ms
from eosdb.model.damage import parsed, reads
from eosdb.model.overview import Overview, PartitionFigures
from eosdb.model.reports import OpenTransaction
from eosdb.model.values import TopicPartition
from eosdb.model.words import printable

COLUMNS: Final = 290
BARS: Final = 150


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture, ready for the template."""

    timeline: PartitionTimeline
    svg: Markup
    caption: str

    @property
    def is_part(self) -> bool:
        """Whether some of the log lies outside of the window."""
        it = self.timeline
        return (it.start, it.end) != (it.offsets.log_start_offset, it.offsets.log_end_offset)

    @property
    def window(self) -> tuple[str, str]:
        """The ends of the axis in the form: offsets, or times."""
        return self._worded(*self.timeline.axis)

    @property
    def halves(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The windows to the left and to the right of this one."""
        low, high = self.timeline.axis
        width = max(high - low, 1)
        return self._worded(max(low - width, 0), low), self._worded(high, high + width)

    def _worded(self, low: int, high: int) -> tuple[str, str]:
        if self.timeline.by == "offset":
            return str(low), str(high)
        return format_time_ms(low, "milliseconds"), format_time_ms(high, "milliseconds")


def draw(
    db: Database, topic: str, partition: int, start: int | None, end: int | None, by: str = "offset"
) -> Drawn:
    """Draw a partition. `start` and `end` are offsets, or by="time" times (epoch ms); None: the whole
    log. Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError."""
    window = {"start": start, "end": end} if by == "offset" else {"since": start, "until": end}
    (timeline,) = db.admin.timeline(
        topic, partition, by=by, **window, max_transactions=BARS, max_bins=COLUMNS
    )
    here = f"/topics/{quote(topic, safe='')}/timeline?by={by}&partition={partition}"

    def transaction(span: TransactionSpan) -> str:
        if span.transactional_id:
            # A damaged name may hold characters that no address can carry.
            return f"/transaction?id={quote(span.transactional_id, safe='', errors='replace')}"
        first, last = timeline.extent(span)
        return f"{here}&from={first}&to={last + 1}"

    links = svg.Links(transaction, lambda low, high: f"{here}&from={low}&to={high}")
    # Its content is escaped where it is written.
    picture = Markup(svg.embedded(timeline, links))
    return Drawn(timeline, picture, svg.caption(timeline))


SHORT: Final = 120
LONG: Final = 20_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or value as text. `kind` is "text", "json", "hex" or "null"."""

    text: str
    kind: str
    left_out: int = 0
    """The number of omitted characters, or bytes if the kind is hex."""


def shown(data: object, limit: int = SHORT, *, pretty: bool = False) -> Shown:
    """Convert a stored key, value or header. `pretty` indents JSON."""
    if data is None:
        return Shown("null", "null")
    if isinstance(data, bytes):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Shown(data[: limit // 3].hex(" "), "hex", max(len(data) - limit // 3, 0))
    else:
        text = str(data)
    kind = "text"
    if text[:1] in ("{", "["):
        try:
            content = parsed(text)
        except ValueError:
            pass
        else:
            kind = "json"
            text = json.dumps(content, indent=2, ensure_ascii=False) if pretty else text
    return Shown(text[:limit], kind, max(len(text) - limit, 0))


def visible(value: object) -> object:
    """`printable` text, with its line breaks; other values, and markup, as they are."""
    return printable(value, keep="\n\t") if isinstance(value, str) and type(value) is str else value


def moment(epoch_ms: int | None) -> str:
    """Format a time as ISO 8601 in UTC; "–" for none."""
    return "–" if epoch_ms is None or epoch_ms < 0 else format_time_ms(epoch_ms)


PAGE: Final = 50
SEARCHED: Final = 20_000
"""How many offsets one search for records of a fate covers."""
FATES: Final = ("committed", "aborted", "open", "plain", "marker")
_COLUMNS: Final = (
    '"offset", timestamp, timestamp_type, key, value, headers, producer_id, producer_epoch, '
    "sequence, transactional_id, is_transactional, control, status"
)
# The status is expensive to compute, so the window bounds the number of rows.
_RECORDS: Final = (
    f"SELECT {_COLUMNS} FROM all_records WHERE topic = ? AND partition = ? "
    'AND "offset" >= ? AND "offset" < ?'
)
_WHERE: Final = {
    "marker": " AND control IS NOT NULL",
    "plain": " AND NOT is_transactional",
    **{
        fate: f" AND is_transactional AND control IS NULL AND status = '{fate}'"
        for fate in ("committed", "aborted", "open")
    },
}


_TRANSACTIONS: Final = (
    "SELECT transactional_id, producer_id, producer_epoch, state, last_update_time "
    "FROM transactions ORDER BY last_update_time DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record or marker."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: object
    value: object
    headers: tuple[tuple[str, object], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional_id: str | None
    control: str | None
    fate: str
    """One of FATES: "plain" is not in a transaction, "marker" ends one."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records in [start, end), newest first; older ones exist if `start` is above the log start."""

    records: tuple[StoredRecord, ...]
    start: int
    end: int


def page(
    db: Database, tp: TopicPartition, first: int, last: int, *, fate: str, newest: bool
) -> RecordPage:
    """Return up to PAGE records with offsets in [first, last): the newest of them, or the oldest. Raises
    TopicAuthorizationFailedError."""
    db.broker.fetch(tp, last, max_records=1)  # The view does not check authorization.
    if fate:
        first, last = (
            (max(first, last - SEARCHED), last) if newest else (first, min(last, first + SEARCHED))
        )
    order = "DESC" if newest else "ASC"
    rows = db.query(
        f'{_RECORDS}{_WHERE.get(fate, "")} ORDER BY "offset" {order} LIMIT {PAGE}',
        (*tp, first, last),
    ).rows
    stored = sorted((_record(row) for row in rows), key=lambda record: -record.offset)
    if len(stored) == PAGE:
        first, last = (stored[-1].offset, last) if newest else (first, stored[0].offset + 1)
    return RecordPage(tuple(stored), first, last)


def record_at(db: Database, tp: TopicPartition, offset: int) -> StoredRecord | None:
    """Return the record at this offset, or None. Raises TopicAuthorizationFailedError."""
    stored = page(db, tp, offset, offset + 1, fate="", newest=True).records
    return stored[0] if stored else None


def latest_transactions(db: Database, count: int) -> list[tuple[Any, ...]]:
    """Return transactional id, producer id, epoch, state and time of the last change, latest first."""
    return [tuple(row) for row in db.query(_TRANSACTIONS, (count,)).rows]


@reads("records")
def _record(row: tuple[Any, ...]) -> StoredRecord:
    (offset, timestamp, timestamp_type, key, value, headers, producer_id, epoch, sequence, name,
     is_transactional, control, status) = row  # fmt: skip
    fate = "marker" if control else status if is_transactional else "plain"
    return StoredRecord(
        offset, timestamp, timestamp_type, key, value, tuple(_headers(headers)), producer_id, epoch,
        sequence, name, control, fate,
    )  # fmt: skip


def _headers(stored: object) -> Iterator[tuple[str, object]]:
    for name, value in parsed(str(stored)) if stored else ():
        yield name, None if value is None else base64.b64decode(value)


_HISTORY: Final = 50
_LETTERS: Final = 50


class Pages:
    """The pages of one file. Each method handles one path, in a thread of the server."""

    def __init__(self, db: Database, watcher: Watcher, *, may_change: bool) -> None:
        self._db = db
        self._watcher = watcher
        self._templates = Environment(
            loader=PackageLoader("eosdb.integrations.ui"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {
            "file": os.path.basename(db.path), "path": db.path, "may_change": may_change,
            "FATES": FATES,
        }  # fmt: skip
        self._templates.filters |= {
            "shown": shown, "moment": moment, "duration": words.duration, "size": words.size,
            "number": words.number, "counted": words.counted,
        }  # fmt: skip

    def routes(self) -> list[Route]:
        pages: Mapping[str, Callable[[Request], Response]] = {
            "/": self.overview,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/timeline": self.timeline,
            "/topics/{topic}/{partition:int}": self.partition,
            "/topics/{topic}/{partition:int}/{offset:int}": self.record,
            "/groups": self.groups,
            "/group": self.group,
            "/transactions": self.transactions,
            "/transaction": self.transaction,
            "/dead-letters": self.dead_letters,
            "/dead-letters/{topic}": self.letters,
        }
        return [Route(path, page, name=page.__name__) for path, page in pages.items()]

    def overview(self, request: Request) -> Response:
        return self._page("overview", holders=self._holders(), **self._figures())

    def topics(self, request: Request) -> Response:
        by_topic: dict[str, list[PartitionFigures]] = {}
        for partition in self._watcher.overview().partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        return self._page("topics", by_topic=by_topic, **self._figures())

    def topic(self, request: Request) -> Response:
        name = request.path_params["topic"]
        described = self._db.admin.describe_topic(name)
        overview = self._watcher.overview()
        return self._page(
            "topic",
            topic=name,
            config=described.config,
            partitions=[partition for partition in overview.partitions if partition.topic == name],
            groups=[
                (group, position)
                for group in overview.groups
                for position in group.positions
                if position.topic == name
            ],
            **self._figures(),
        )

    def partition(self, request: Request) -> Response:
        tp = TopicPartition(request.path_params["topic"], request.path_params["partition"])
        offsets = self._offsets(tp)
        fate = request.query_params.get("fate", "")
        if fate not in ("", *FATES):
            raise HTTPException(400, f"fate: got {fate!r}, expected one of {FATES}")
        low, high = offsets.log_start_offset, offsets.log_end_offset
        start, end = _offset(request, "from"), _offset(request, "before")
        when = request.query_params.get("time", "").strip()
        if when:
            at = self._db.admin._first_record_at(
                tp, _time(when), isolation_level="read_uncommitted"
            )
            start = high if at is None else at.offset
        shown = page(
            self._db,
            tp,
            low if start is None else min(max(start, low), high),
            high if end is None else max(min(end, high), low),
            fate=fate,
            newest=start is None,
        )
        return self._page("partition", tp=tp, offsets=offsets, page=shown, fate=fate, when=when)

    def record(self, request: Request) -> Response:
        tp = TopicPartition(request.path_params["topic"], request.path_params["partition"])
        offset = request.path_params["offset"]
        offsets = self._offsets(tp)
        if not offsets.log_start_offset <= offset < offsets.log_end_offset or not (
            stored := record_at(self._db, tp, offset)
        ):
            raise HTTPException(404, f"{tp.topic}-{tp.partition} has no record at offset {offset}")
        return self._page("record", tp=tp, record=stored, limit=LONG)

    def timeline(self, request: Request) -> Response:
        name = request.path_params["topic"]
        by = request.query_params.get("by", "offset")
        if by not in BY:
            raise HTTPException(400, f"by: got {by!r}, expected one of {', '.join(BY)}")
        start, end = (
            _offset(request, edge) if by == "offset" else _moment(request, edge)
            for edge in ("from", "to")
        )
        number = _offset(request, "partition")
        drawn = draw(self._db, name, 0 if number is None else number, start, end, by)
        partitions = len(self._db.admin.describe_topic(name).partitions)
        return self._page("timeline", topic=name, drawn=drawn, partitions=partitions)

    def groups(self, request: Request) -> Response:
        return self._page("groups", **self._figures())

    def group(self, request: Request) -> Response:
        name = request.query_params.get("id", "")
        return self._page("group", report=self._db.admin.describe_group_offsets(name))

    def transactions(self, request: Request) -> Response:
        return self._page(
            "transactions",
            holders=self._holders(),
            known=latest_transactions(self._db, _HISTORY),
            **self._figures(),
        )

    def transaction(self, request: Request) -> Response:
        name = request.query_params.get("id", "")
        history = self._db.admin.transaction_history(name)
        return self._page(
            "transaction", name=name, history=history[-_HISTORY:][::-1], all=len(history)
        )

    def dead_letters(self, request: Request) -> Response:
        return self._page("dead_letters", **self._figures())

    def letters(self, request: Request) -> Response:
        name = request.path_params["topic"]
        waiting = []
        for letter in self._db.dead_letters(name).letters():
            if not letter.is_replayed and letter.failure is not None:
                waiting.append(letter)
            if len(waiting) > _LETTERS:
                break
        return self._page(
            "letters", topic=name, letters=waiting[:_LETTERS], more=len(waiting) > _LETTERS
        )

    def error(self, request: Request, error: Exception) -> Response:
        """Render an error as a page, with its status."""
        status, why = _status(error)
        return self._page("error", status=status, why=why, code=status)

    def done(self, what: str) -> Response:
        """Render the result of a change as a page."""
        return self._page("done", what=what)

    def _figures(self) -> dict[str, Any]:
        return {"now": self._watcher.overview(), "rates": self._watcher.rates()}

    def _holders(self) -> list[tuple[OpenTransaction, int]]:
        """Return the open transactions that hold a last stable offset, and the number of offsets behind
        each."""
        overview: Overview = self._watcher.overview()
        ends = {
            partition.topic_partition: partition.offsets.log_end_offset
            for partition in overview.partitions
        }
        return [
            (holder, ends[holder.topic_partition] - holder.start_offset)
            for holder in overview.holders()
        ]

    def _offsets(self, tp: TopicPartition) -> Any:
        partitions = self._db.admin.describe_topic(tp.topic).partitions
        if tp.partition >= len(partitions):
            raise HTTPException(
                404, f"{tp.topic} has no partition {tp.partition}, only 0 to {len(partitions) - 1}"
            )
        return partitions[tp.partition]

    def _page(self, section: str, *, code: int = 200, **values: object) -> Response:
        html = self._templates.get_template(f"{section}.html").render(section=section, **values)
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), code)


def _offset(request: Request, name: str) -> int | None:
    """Parse an offset of the query; None if it is missing or empty."""
    given = request.query_params.get(name, "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 18:
        raise HTTPException(400, f"{name}: got {given!r}, expected an offset such as 42")
    return int(given)


def _moment(request: Request, name: str) -> int | None:
    """Parse a time of the query to epoch ms; None if it is missing or empty."""
    given = request.query_params.get(name, "").strip()
    return _time(given) if given else None


def _time(given: str) -> int:
    try:
        return parse_time_ms(given)
    except ValueError as error:
        raise HTTPException(400, f"time: {error}") from None


_STATUS: Final = {
    "UnknownTopicOrPartitionError": 404, "TransactionalIdNotFoundError": 404, "GroupIdNotFoundError": 404,
    "InvalidRequestError": 400, "InvalidTopicExceptionError": 404, "OffsetOutOfRangeError": 404,
    "InvalidTimestampError": 400, "ConfigError": 400,
}  # fmt: skip


def _status(error: Exception) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, EosdbError):
        name = type(error).__name__
        return _STATUS.get(name, 403 if "Authorization" in name else 503), str(error)
    return 500, f"this is a mistake in eosdb: {type(error).__name__}"
