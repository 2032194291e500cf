"""Serves the pages on loopback, from a thread: the ASGI application, its refusals, and its changes.

decisions/0049: the server renders whole pages, and a browser reloads a page when the file has changed.
Requests that do not come from a page of this server are refused: other host names, and scripts, frames
and links of other origins. `eosdb ui --allow-changes` adds paths for changes: every form must contain the
token that the command prints, and the file is opened for writing for one change at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib.resources import files
from typing import Final, Self
from urllib.parse import parse_qs, quote, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eosdb.admin.timeline.svg import STYLE
from eosdb.database import Database
from eosdb.errors import EosdbError, StorageError
from eosdb.integrations.ui.pages import INTERVAL_MS, Site, Watcher, reset
from eosdb.model.closing import Closeable
from eosdb.model.threads import Thread
from eosdb.model.values import TopicPartition
from eosdb.model.words import counted
from eosdb.wire.listening import listen

# decisions/0049: the token is a field of the form, no cookie.
_BODY_MAX: Final = 10_000
Open = Callable[[], Database]
Show = Callable[[str, str], Response]
Change = Callable[[Database, Mapping[str, str]], tuple[str, str]]


def changes(token: str, open_to_write: Open, show: Show) -> list[Route]:
    """The routes of the forms that change something. `open_to_write` opens the file. `show` renders the
    result, from a sentence about it and the URL of the page to return to."""

    def route(path: str, change: Change) -> Route:
        async def changed(request: Request) -> Response:
            form = await _form(request, token)

            def run() -> tuple[str, str]:
                with open_to_write() as db:
                    return change(db, form)

            return show(*await run_in_threadpool(run))

        return Route(path, changed, methods=["POST"])

    return [route("/replay", _replay), route("/abort", _abort), route("/reset", _reset)]


async def _form(request: Request, token: str) -> Mapping[str, str]:
    """Return the fields of the form after checking its token."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_MAX:
            raise HTTPException(413, f"the form has more than {_BODY_MAX} bytes")
    form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
    if not hmac.compare_digest(form.pop("token", "").encode(), token.encode()):
        raise HTTPException(
            403,
            "nothing was changed: the token is missing or wrong. It is in the address that "
            "`eosdb ui --allow-changes` printed",
        )
    return form


def _replay(db: Database, form: Mapping[str, str]) -> tuple[str, str]:
    topic = form.get("topic", "")
    chosen = [(_number(form, "partition"), _number(form, "offset"))] if "offset" in form else None
    report = db.dead_letters(topic).replay(chosen)
    skipped = f"; {report.skipped} had been sent back before" if report.skipped else ""
    what = f"{counted(report.replayed, 'dead letter')} of {topic} sent back{skipped}."
    return what, f"/dead-letters/{quote(topic, safe='')}"


def _abort(db: Database, form: Mapping[str, str]) -> tuple[str, str]:
    tp = TopicPartition(form.get("topic", ""), _number(form, "partition"))
    offset = _number(form, "offset")
    outcome = db.admin.abort_transaction(tp, offset)
    where = f"{tp.topic}-{tp.partition}, offset {offset}"
    return f"The transaction that begins at {where} has ended with {outcome}.", "/transactions"


def _reset(db: Database, form: Mapping[str, str]) -> tuple[str, str]:
    group = form.get("id", "")
    moved = reset(db, group, form.get("to", ""), execute=True)
    what = f"{counted(len(moved), 'position')} of {group} moved."
    return what, f"/group?{urlencode({'id': group})}"


def _number(form: Mapping[str, str], name: str) -> int:
    given = form.get(name, "")
    if not (given.isascii() and given.isdigit()) or len(given) > 18:
        raise HTTPException(400, f"nothing was changed: {name}: got {given!r}, expected a number")
    return int(given)


_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_OUR_SITES: Final = (None, "same-origin", "none")
"""The allowed values of Sec-Fetch-Site: none (an old browser), a page of this server, a typed URL."""
# decisions/0049: pages of other origins cannot read these pages, which load only files of this server.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer", browsers would send the forms of our own pages with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(headers: Mapping[str, str], port: int) -> str | None:
    """Return why a request with these headers (names in lower case) is refused; None if it is allowed. The
    host name is checked, because any name may resolve to this machine (DNS rebinding)."""
    hosts = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == 80 else set())
    host = headers.get("host", "")
    if host not in hosts:
        return f"the request is for the host {host!r}; this server answers for 127.0.0.1:{port}"
    origin = headers.get("origin")
    if origin is not None and origin not in {f"http://{name}" for name in hosts}:
        return f"the request comes from a page of {origin!r}; only pages of this server may ask it"
    if headers.get("sec-fetch-site") not in _OUR_SITES:
        return "the request comes from a page of another site; open the address directly"
    return None


def guarded(app: ASGIApp, port: int) -> ASGIApp:
    """ASGI middleware: answers refused requests with 403, and adds `HEADERS` to every response."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":
            await app(scope, receive, send)
        elif (why := refusal(Headers(scope=scope), port)) is None:
            await app(scope, receive, with_headers)
        else:
            await PlainTextResponse(f"refused: {why}\n", 403)(scope, receive, with_headers)

    return guard


_FILES: Final = files("eosdb.integrations.ui") / "static"
_TYPES: Final = {"ui.css": "text/css", "ui.js": "text/javascript"}
_QUIET_S: Final = 15
"""The interval of keep-alive comments in a stream."""


def make_app(
    db: Database,
    port: int,
    *,
    token: str = "",
    open_to_write: Open | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Build the application that serves the pages of `db` at 127.0.0.1:`port`.

    With `open_to_write`, pages can replay dead letters, abort transactions and move groups' positions. The
    streams of live updates end when `stopping()` is true.
    """
    watcher = Watcher(db)
    pages = Site(db, watcher, may_change=open_to_write is not None)
    routes: list[BaseRoute] = [
        *pages.routes(),
        Route("/live", _live(watcher, stopping)),
        *(_static(name, _FILES.joinpath(name).read_bytes(), kind) for name, kind in _TYPES.items()),
        _static("timeline.css", STYLE.encode(), "text/css"),
    ]
    if open_to_write is not None:
        routes += changes(token, open_to_write, pages.done)
    handlers = dict.fromkeys((HTTPException, EosdbError, Exception), pages.error)
    app = Starlette(routes=routes, exception_handlers=handlers)
    return guarded(app, port)  # The outermost middleware, so that error pages get its headers, too.


def _static(name: str, content: bytes, kind: str) -> Route:
    return Route(f"/{name}", lambda _: Response(content, media_type=kind))


def _live(watcher: Watcher, stopping: Callable[[], bool]) -> Callable[[Request], Response]:
    async def changes(request: Request) -> AsyncIterator[str]:
        before, quiet = "", 0.0
        while not stopping() and not await request.is_disconnected():
            try:
                version = await run_in_threadpool(watcher.version)
            except EosdbError as error:
                version = f"error {type(error).__name__}"
            quiet += INTERVAL_MS / 1000
            if version != before:
                before, quiet = version, 0.0
                yield f"event: change\ndata: {version}\n\n"
            elif quiet >= _QUIET_S:
                quiet = 0.0
                yield ": nothing new\n\n"
            await asyncio.sleep(INTERVAL_MS / 1000)

    async def live(request: Request) -> Response:
        return StreamingResponse(changes(request), media_type="text/event-stream")

    return live  # type: ignore[return-value]  # Starlette takes both kinds of functions.


_HOST: Final = "127.0.0.1"


class UiServer(Closeable):
    """Context manager that serves the pages of an open file at `url`, from a thread of this process.

    With `open_to_write`, which opens the file for one change, users who know `token` can make the changes
    that docs/ui.md lists. Port 0 takes a free port. Raises ListenError if the port is in use.
    """

    def __init__(
        self, db: Database, port: int = 0, *, open_to_write: Callable[[], Database] | None = None
    ) -> None:
        # Connections queue until the thread accepts them.
        (self._socket,) = listen([_HOST], port)
        self.port: Final[int] = self._socket.getsockname()[1]
        self.token: Final = "" if open_to_write is None else secrets.token_urlsafe(24)
        app = make_app(
            db, self.port, token=self.token, open_to_write=open_to_write,
            stopping=lambda: self._server.should_exit,
        )  # fmt: skip
        # Streams of live updates do not end by themselves, so the server does not wait for them.
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off",
            ws="none", server_header=False,
        )  # fmt: skip
        self._server: Final = _Server(config)
        self._thread = Thread("the page", "eosdb-ui", self._server.run, sockets=[self._socket])

    @property
    def url(self) -> str:
        """The address of the pages. The token is in the fragment, which browsers do not send."""
        return f"http://{_HOST}:{self.port}/" + (f"#token={self.token}" if self.token else "")

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except StorageError:
            self._socket.close()
            raise
        return self

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program. (Overrides uvicorn's method.)"""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Also close connections that uvicorn has given up, or accepted while it was stopping: its event
        loop ends, and nothing else would close them."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
