"""Refuses requests that do not come from a page of this server: other host names, and scripts, frames and
links of other origins. Also sets the headers that restrict a page to its own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_OUR_SITES: Final = (None, "same-origin", "none")
"""Of Sec-Fetch-Site: not a browser (or an old one), a page of ours, or typed by the user."""
# decisions/0049: reads are refused, too, and a page loads only its own files.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with it browsers send the forms of our own pages with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(headers: Mapping[str, str], port: int) -> str | None:
    """Return why a request with these headers (names in lower case) is refused; None if it is allowed.

    The host name is checked because any name may be made to resolve to this machine (DNS rebinding).
    """
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


class Guard:
    """ASGI middleware: answers refused requests with 403, and adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        why = refusal(Headers(scope=scope), self._port)
        app = self._app if why is None else PlainTextResponse(f"refused: {why}\n", 403)
        await app(scope, receive, guarded)
