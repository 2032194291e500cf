"""The ASGI application: pages, static files, live updates by server-sent events, and error pages.

decisions/0049: the server renders whole pages, and a browser reloads a page when the file has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from eosdb.database import Database
from eosdb.errors import EosdbError
from eosdb.integrations.ui.changes import Changes, Open
from eosdb.integrations.ui.guard import Guard
from eosdb.integrations.ui.pages import Pages
from eosdb.integrations.ui.watching import INTERVAL_MS, Watcher
from eosdb.model.timeline.svg import STYLE

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

    With a `token` and `open_to_write`, pages can replay dead letters and abort transactions. The streams of
    live updates end when `stopping()` is true.
    """
    watcher = Watcher(db)
    may_change = bool(token) and open_to_write is not None
    pages = Pages(db, watcher, may_change=may_change)
    routes: list[BaseRoute] = [
        *pages.routes(),
        Route("/live", _live(watcher, stopping)),
        *(Route(f"/{name}", _static(_file(name), kind)) for name, kind in _TYPES.items()),
        Route("/timeline.css", _static(STYLE.encode(), "text/css")),
    ]
    if may_change and open_to_write is not None:
        routes += Changes(token, open_to_write, pages.done).routes()
    handlers = dict.fromkeys((HTTPException, EosdbError, Exception), pages.error)
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, port)  # Outermost, so that error pages get its headers, too.


def _file(name: str) -> bytes:
    return files("eosdb.integrations.ui").joinpath("static", name).read_bytes()


def _static(content: bytes, kind: str) -> Callable[[Request], Response]:
    def file(request: Request) -> Response:
        return Response(content, media_type=kind)

    return file


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
