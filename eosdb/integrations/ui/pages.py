"""The pages: each queries the database and renders a template. Read-only.

Records and the latest transactional ids come from the documented views, which any user may query. `Watcher`
reads the overview at most once a second, for all browsers; without requests it reads nothing, and it holds
no snapshot.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from eosdb.admin.timeline import svg
from eosdb.admin.timeline.reading import PartitionTimeline, TransactionSpan
from eosdb.admin.tools import Tools
from eosdb.admin.transactions import told
from eosdb.admin.worries import Worry
from eosdb.database import Database
from eosdb.errors import EosdbError
from eosdb.model import words
from eosdb.model.clock import Clock, format_time_ms, parse_time_ms
from eosdb.model.damage import parsed, reads
from eosdb.model.overview import Overview, Rates, between
from eosdb.model.reports import OffsetReset
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.model.words import printable

INTERVAL_MS: Final = 1_000
_WINDOW_MS: Final = 10_000
_TREND_MS, _STEP_MS = 600_000, 5_000
Series = list[tuple[float, float]]


class Watcher:
    """Caches the overview of a file for a second. Computes rates over the last ten seconds, and keeps
    figures of the last ten minutes."""

    def __init__(self, db: Database, clock: Clock | None = None) -> None:
        self._db = db
        self._clock: Final = clock or db.clock
        self._lock = threading.Lock()
        self._readings: deque[tuple[int, Overview]] = deque()
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_TREND_MS // _STEP_MS + 1)
        """Readings of the last ten minutes: time, journal position, and the sum of the groups' lags."""
        self.worries: list[Worry] = []
        """The problems of the newest overview."""

    def overview(self) -> Overview:
        """Return an overview at most a second old. Raises the errors of `Admin.overview`."""
        with self._lock:
            now = self._clock.monotonic_ms()
            if not self._readings or now - self._readings[-1][0] >= INTERVAL_MS:
                read = self._db.admin.overview()
                self.worries = self._db.why(read)
                self._readings.append((now, read))
                if not self._seen or now - self._seen[-1][0] >= _STEP_MS:
                    behind = sum(group.behind for group in read.groups)
                    self._seen.append((now, read.journal_position, behind))
                while now - self._readings[0][0] > _WINDOW_MS and len(self._readings) > 1:
                    self._readings.popleft()
            return self._readings[-1][1]

    def rates(self) -> Rates | None:
        """Return the rates, or None before the second reading."""
        with self._lock:
            if len(self._readings) < 2:
                return None
            return between(self._readings[0][1], self._readings[-1][1])

    def trends(self) -> tuple[Series, Series]:
        """Return the events per second, and the lag in records, of the last ten minutes, as pairs of x (0
        to 1) and value. Values are missing for times when no page was open."""
        with self._lock:
            since = self._clock.monotonic_ms() - _TREND_MS
            seen = [one for one in self._seen if one[0] >= since]
        events = [
            ((at - since) / _TREND_MS, 1_000 * (position - before) / (at - earlier))
            for (earlier, before, _), (at, position, _) in pairwise(seen)
        ]
        return events, [((at - since) / _TREND_MS, behind) for at, _, behind in seen]

    def version(self) -> str:
        """Return a text that changes whenever the content of a page may have changed."""
        overview = self.overview()
        figures = (
            overview.wal_bytes,
            overview.size_bytes,
            overview.journal_position,
            len(self.worries),
            len(overview.transactions),
            # Due records are counted separately, because they become due without a write.
            sum(len(group.due) for group in overview.groups),
            sum(one.hanging is not None for one in overview.transactions),
        )
        return "-".join(str(figure) for figure in figures)


COLUMNS: Final = 290
BARS: Final = 150


class Drawn(NamedTuple):
    """A picture of a partition, ready for the template."""

    timeline: PartitionTimeline
    svg: Markup
    caption: str
    is_part: bool
    """Whether some of the log lies outside of the window."""
    window: tuple[str, str]
    """The ends of the axis as values for the form: offsets, or times."""
    halves: tuple[tuple[str, str], tuple[str, str]]
    """The windows to the left and to the right of this one."""


def draw(
    db: Database, topic: str, partition: int, start: int | None, end: int | None, by: str = "offset"
) -> Drawn:
    """Draw a partition. `start` and `end` are offsets, or by="time" times (epoch ms); None: the whole
    log. Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError."""
    window = {"start": start, "end": end} if by == "offset" else {"since": start, "until": end}
    (it,) = db.admin.timeline(
        topic, partition, by=by, **window, max_transactions=BARS, max_bins=COLUMNS
    )
    here = f"/topics/{quote(topic, safe='')}/timeline?by={by}&partition={partition}"

    def link(to: TransactionSpan | tuple[int, int]) -> str:
        if isinstance(to, TransactionSpan):
            if to.transactional_id:
                # A damaged name may have characters that a URL cannot hold.
                return f"/transaction?id={quote(to.transactional_id, safe='', errors='replace')}"
            first, last = it.extent(to)
            to = first, last + 1
        return f"{here}&from={to[0]}&to={to[1]}"

    def edges(*places: int) -> tuple[str, str]:
        low, high = (
            str(place) if by == "offset" else format_time_ms(place, "milliseconds")
            for place in places
        )
        return low, high

    picture, caption = svg.embedded(it, link)
    low, high = it.axis
    width = max(high - low, 1)
    return Drawn(
        it,
        Markup(picture),  # `svg` has escaped its content.
        caption,
        (it.start, it.end) != (it.offsets.log_start_offset, it.offsets.log_end_offset),
        edges(low, high),
        (edges(max(low - width, 0), low), edges(high, high + width)),
    )


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
    """`printable` text with its line breaks, and any other value unchanged."""
    return printable(value, keep="\n\t") if isinstance(value, str) and type(value) is str else value


def moment(epoch_ms: int | None) -> str:
    """Format a time as ISO 8601 in UTC; "–" for none."""
    return "–" if epoch_ms is None or epoch_ms < 0 else format_time_ms(epoch_ms)


PAGE: Final = 50
SEARCHED: Final = 20_000
"""How many offsets one search for a key or a fate covers."""
FATES: Final = ("committed", "aborted", "open", "plain", "marker")
# Computing the status is expensive, so the query does it only for the rows of the window.
_RECORDS: Final = """
SELECT * FROM (
    SELECT *, CASE
        WHEN control IS NOT NULL THEN 'marker' WHEN is_transactional THEN status ELSE 'plain'
    END AS fate
    FROM all_records WHERE topic = ?1 AND partition = ?2 AND "offset" >= ?3 AND "offset" < ?4
) WHERE (?5 = '' OR fate = ?5) AND (?6 = X'' OR key = ?6)
"""
_TRANSACTIONS: Final = (
    "SELECT transactional_id, producer_id, producer_epoch, state, last_update_time "
    "FROM transactions ORDER BY last_update_time DESC LIMIT ?"
)
_WRITTEN: Final = (
    'SELECT count(*) FROM all_records WHERE topic = ? AND partition = ? AND "offset" >= ? '
    "AND producer_id = ? AND control IS NULL"
)
_HISTORY: Final = 50
_LETTERS: Final = 50


@reads("records")
def headers(stored: object) -> list[tuple[str, object]]:
    """Parse the headers of a stored record."""
    return [
        (name, None if value is None else base64.b64decode(value))
        for name, value in (parsed(str(stored)) if stored else ())
    ]


def spark(series: Sequence[tuple[float, float]], label: str) -> Markup:
    """Draw `series`, pairs of x (0 to 1) and value, as a line above a filled area."""
    most = max((value for _, value in series), default=0)
    drawn = "L".join(f"{200 * x:.1f} {36 - 34 * value / (most or 1):.1f}" for x, value in series)
    text = escape(f"{label}: at most {words.number(most)}")
    area = f"M{drawn}L{200 * series[-1][0]:.1f} 38L{200 * series[0][0]:.1f} 38Z" if series else ""
    return Markup(
        f'<svg class="spark" viewBox="0 0 200 38" preserveAspectRatio="none" role="img" '
        f'aria-label="{text}"><title>{text}</title><path class="area" d="{area}"/>'
        f'<path class="line" d="{"M" + drawn if series else ""}"/></svg>'
    )


class Site:
    """The pages of one file. Each method handles one path, in a thread of the server."""

    def __init__(self, db: Database, watcher: Watcher, *, may_change: bool) -> None:
        self._db = db
        self._watcher = watcher
        self._may_change = may_change
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
            "number": words.number, "counted": words.counted, "headers": headers, "spark": spark,
        }  # fmt: skip

    def routes(self) -> list[Route]:
        pages: dict[str, Callable[[Request], Response]] = {
            "/": self._figures("overview"),
            "/topics": self._figures("topics"),
            "/topics/{topic}": self.topic,
            "/topics/{topic}/timeline": self.timeline,
            "/topics/{topic}/{partition:int}": self.partition,
            "/topics/{topic}/{partition:int}/{offset:int}": self.record,
            "/groups": self._figures("groups"),
            "/group": self.group,
            "/transactions": self.transactions,
            "/transaction": self.transaction,
            "/dead-letters": self._figures("dead_letters"),
            "/dead-letters/{topic}": self.letters,
        }
        if self._may_change:
            pages |= {"/abort": self.abort, "/replay": self.replay, "/reset": self.reset}
        return [Route(path, page) for path, page in pages.items()]

    def topic(self, request: Request) -> Response:
        name = request.path_params["topic"]
        described = self._db.admin.describe_topic(name)
        if key := request.query_params.get("key", "").strip():
            ends = [(TopicPartition(name, i), one) for i, one in enumerate(described.partitions)]
            having = (
                tp.partition for tp, at in ends if self._records(tp, _log(at), key=key)["records"]
            )
            found = f"/topics/{quote(name, safe='')}/{next(having, 0)}"
            return RedirectResponse(f"{found}?{urlencode({'key': key})}")
        return self._figures("topic", topic=name, config=described.config)(request)

    def partition(self, request: Request) -> Response:
        tp, partitions = self._found(request)
        offsets = partitions[tp.partition]
        fate, key, when = (
            request.query_params.get(name, "").strip() for name in ("fate", "key", "time")
        )
        if fate not in ("", *FATES):
            raise HTTPException(400, f"fate: got {fate!r}, expected one of {FATES}")
        log = _log(offsets)
        start, end = _offset(request, "from"), _offset(request, "before")
        if when:
            at = Tools(self._db.admin).first_record_at(
                tp, _time(when), isolation_level="read_uncommitted"
            )
            start = log.stop if at is None else at.offset
        ends = log.start if start is None else start, log.stop if end is None else end
        window = range(*(min(max(each, log.start), log.stop) for each in ends))
        found = self._records(tp, window, fate=fate, key=key, newest=start is None)
        return self._page(
            "partition", tp=tp, partitions=partitions, offsets=offsets, fate=fate, key=key, when=when,
            **found,
        )  # fmt: skip

    def record(self, request: Request) -> Response:
        tp, partitions = self._found(request)
        offset = request.path_params["offset"]
        is_there = offset in _log(partitions[tp.partition])
        found = is_there and self._records(tp, range(offset, offset + 1))["records"]
        if not found:
            raise HTTPException(404, f"{tp.topic}-{tp.partition} has no record at offset {offset}")
        return self._page("record", tp=tp, record=found[0], limit=LONG)

    def timeline(self, request: Request) -> Response:
        name = request.path_params["topic"]
        by = request.query_params.get("by", "offset")
        start, end = (
            _offset(request, edge) if by == "offset" else _moment(request, edge)
            for edge in ("from", "to")
        )
        number = _offset(request, "partition")
        drawn = draw(self._db, name, 0 if number is None else number, start, end, by)
        partitions = len(self._db.admin.describe_topic(name).partitions)
        return self._page("timeline", topic=name, drawn=drawn, partitions=partitions)

    def group(self, request: Request) -> Response:
        name = request.query_params.get("id", "")
        return self._page("group", report=self._db.admin.describe_group_offsets(name))

    def transactions(self, request: Request) -> Response:
        known = self._db.query(_TRANSACTIONS, (_HISTORY,)).all()
        return self._figures("transactions", known=known)(request)

    def transaction(self, request: Request) -> Response:
        name = request.query_params.get("id", "")
        every = self._db.admin.transaction_history(name)
        history = told(self._db.query, name, every[-_HISTORY:][::-1])
        return self._page("transaction", name=name, history=history, all=len(every))

    def letters(self, request: Request) -> Response:
        name = request.path_params["topic"]
        waiting = list(islice(self._waiting(name), _LETTERS + 1))
        return self._page(
            "letters", topic=name, letters=waiting[:_LETTERS], more=len(waiting) > _LETTERS
        )

    def replay(self, request: Request) -> Response:
        """Ask for confirmation before dead letters are replayed, and show their target partitions."""
        fields = dict(request.query_params)
        topic = fields.get("topic", "")
        one = _offset(request, "partition"), _offset(request, "offset")
        places = Counter(
            (letter.failure.topic, letter.failure.partition)
            for letter in self._waiting(topic)
            if "offset" not in fields or (letter.record.partition, letter.record.offset) == one
        )
        act = f"Send {words.counted(places.total(), 'dead letter')} of {topic} back"
        effect = (
            "Each is appended once to the partition it came from, and its groups read it again."
        )
        back = f"/dead-letters/{quote(topic, safe='')}"
        return self._page(
            "confirm", act=act, effect=effect, places=places, fields=fields, back=back
        )

    def reset(self, request: Request) -> Response:
        """Ask for confirmation before a group's positions are moved, and show how far each moves."""
        fields = dict(request.query_params)
        group, to = fields.get("id", ""), fields.get("to", "")
        places = {
            TopicPartition(one.topic, one.partition): abs(one.after - max(one.before, 0))
            for one in reset(self._db, group, to, execute=False)
        }
        where = "log's end: it skips" if to == "latest" else "earliest record: it reads again"
        return self._page(
            "confirm", act=f"Reset the positions of {group}", places=places, fields=fields,
            effect=f"The group begins at the {where} as many offsets as shown. It must have no members.",
            back=f"/group?{urlencode({'id': group})}",
        )  # fmt: skip

    def abort(self, request: Request) -> Response:
        """Ask for confirmation before an open transaction is ended, and show the effect."""
        fields = dict(request.query_params)
        where = fields.get("topic"), _offset(request, "partition"), _offset(request, "offset")
        every = self._db.admin.open_transactions()
        one = next((it for it in every if (*it.topic_partition, it.start_offset) == where), None)
        if one is None:
            raise HTTPException(404, f"no open transaction begins at {where}; it may have ended")
        places = {
            it.topic_partition: self._db.query(
                _WRITTEN, (*it.topic_partition, it.start_offset, it.producer_id)
            ).one()[0]
            for it in every
            if (it.producer_id, it.hanging) == (one.producer_id, one.hanging)
        }
        verb, effect = "Abort", (
            "Its records become aborted, and read_committed readers skip them. Its producer is fenced."
        )  # fmt: skip
        if one.state == "PrepareCommit":
            verb, effect = "Commit", "Its commit is decided: its records become committed."
        act = f"{verb} the transaction of {one.transactional_id or f'producer {one.producer_id}'}"
        return self._page(
            "confirm", act=act, effect=effect, places=places, fields=fields, back="/transactions"
        )

    def error(self, request: Request, error: Exception) -> Response:
        """Render an error as a page, with its status."""
        status, why = _status(error)
        return self._page("error", status=status, why=why, code=status)

    def done(self, what: str, back: str) -> Response:
        """Render the result of a change as a page."""
        return self._page("done", what=what, back=back)

    def _figures(self, section: str, **values: Any) -> Callable[[Request], Response]:
        """Render a page that shows the figures of the file."""

        def page(request: Request) -> Response:
            now = self._watcher.overview()
            ends = {one.topic_partition: one.offsets.log_end_offset for one in now.partitions}
            held = {
                (one.topic_partition, one.start_offset): ends[one.topic_partition]
                - one.start_offset
                for one in now.holders()
            }
            rates, trends = self._watcher.rates(), self._watcher.trends()
            return self._page(
                section, now=now, held=held, rates=rates, trends=trends,
                worries=self._watcher.worries, **values,
            )  # fmt: skip

        return page

    def _records(
        self,
        tp: TopicPartition,
        window: range,
        *,
        fate: str = "",
        key: str = "",
        newest: bool = True,
    ) -> dict[str, Any]:
        """Return up to PAGE records of the window, newest first, and the part of the window that was
        searched: its newest offsets, or its oldest. Raises TopicAuthorizationFailedError."""
        self._db.broker.fetch(
            tp, window.stop, max_records=1
        )  # Checks the authorization, which the view does not.
        if fate or key:
            window = window[-SEARCHED:] if newest else window[:SEARCHED]
        first, last = window.start, window.stop
        rows = self._db.query(
            f'{_RECORDS} ORDER BY "offset" {"DESC" if newest else "ASC"} LIMIT {PAGE}',
            (*tp, first, last, fate, key.encode()),
        ).all()
        if len(rows) == PAGE:
            first, last = (rows[-1].offset, last) if newest else (first, rows[-1].offset + 1)
        return {"records": rows if newest else rows[::-1], "start": first, "end": last}

    def _waiting(self, topic: str) -> Iterator[Any]:
        """The dead letters that have an origin and were not replayed."""
        letters = self._db.dead_letters(topic).letters()
        return (one for one in letters if not one.is_replayed and one.failure is not None)

    def _found(self, request: Request) -> tuple[TopicPartition, tuple[PartitionOffsets, ...]]:
        """The partition that the URL names, and the offsets of all partitions of its topic."""
        tp = TopicPartition(request.path_params["topic"], request.path_params["partition"])
        partitions = self._db.admin.describe_topic(tp.topic).partitions
        if tp.partition >= len(partitions):
            raise HTTPException(
                404, f"{tp.topic} has no partition {tp.partition}, only 0 to {len(partitions) - 1}"
            )
        return tp, partitions

    def _page(self, section: str, *, code: int = 200, **values: object) -> Response:
        html = self._templates.get_template(f"{section}.html").render(section=section, **values)
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), code)


def reset(db: Database, group_id: str, to: str, *, execute: bool) -> list[OffsetReset]:
    """Move the group's positions in all its partitions "to" the earliest or latest record."""
    if to not in ("earliest", "latest"):
        raise HTTPException(400, f"to: got {to!r}, expected 'earliest' or 'latest'")
    at = db.admin.describe_group_offsets(group_id).partitions
    tps = [TopicPartition(one.topic, one.partition) for one in at]
    return db.admin.reset_offsets(group_id, tps, execute=execute, **{f"to_{to}": True})


def _log(partition: PartitionOffsets) -> range:
    return range(partition.log_start_offset, partition.log_end_offset)


def _offset(request: Request, name: str) -> int | None:
    """Parse an offset from the query string; None if it is missing or empty."""
    given = request.query_params.get(name, "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 18:
        raise HTTPException(400, f"{name}: got {given!r}, expected an offset such as 42")
    return int(given)


def _moment(request: Request, name: str) -> int | None:
    """Parse a time from the query string to epoch ms; None if it is missing or empty."""
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
