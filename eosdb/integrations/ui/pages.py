"""The pages: each queries the database and renders a template. Read-only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from eosdb.database import Database
from eosdb.errors import EosdbError
from eosdb.integrations.ui import records, text, timeline
from eosdb.integrations.ui.watching import Watcher
from eosdb.model import words
from eosdb.model.clock import parse_time_ms
from eosdb.model.overview import Overview, PartitionFigures
from eosdb.model.reports import OpenTransaction
from eosdb.model.timeline.timeline import BY
from eosdb.model.values import TopicPartition

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
            finalize=text.visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {
            "file": os.path.basename(db.path), "path": db.path, "may_change": may_change,
            "FATES": records.FATES,
        }  # fmt: skip
        self._templates.filters |= {
            "shown": text.shown, "moment": text.moment, "duration": words.duration, "size": words.size,
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
        if fate not in ("", *records.FATES):
            raise HTTPException(400, f"fate: got {fate!r}, expected one of {records.FATES}")
        low, high = offsets.log_start_offset, offsets.log_end_offset
        start, end = _offset(request, "from"), _offset(request, "before")
        when = request.query_params.get("time", "").strip()
        if when:
            at = self._db.admin.first_record_at(tp, _time(when), isolation_level="read_uncommitted")
            start = high if at is None else at.offset
        shown = records.page(
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
            stored := records.record_at(self._db, tp, offset)
        ):
            raise HTTPException(404, f"{tp.topic}-{tp.partition} has no record at offset {offset}")
        return self._page("record", tp=tp, record=stored, limit=text.LONG)

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
        drawn = timeline.draw(self._db, name, 0 if number is None else number, start, end, by)
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
            known=records.latest_transactions(self._db, _HISTORY),
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
