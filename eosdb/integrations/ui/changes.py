"""The changes that the page offers with `eosdb ui --allow-changes`: replay dead letters, abort a
transaction. Without that flag these paths do not exist.

Every form must contain the token that the command prints. The file is opened for writing for one change at
a time.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eosdb.database import Database
from eosdb.model.values import TopicPartition
from eosdb.model.words import counted

# decisions/0049: the token is a field of the form, no cookie.
_BODY_MAX: Final = 10_000
Open = Callable[[], Database]
Show = Callable[[str], Response]


class Changes:
    """Two paths that take a form. `open_to_write` opens the file; `show` makes the page of the result."""

    def __init__(self, token: str, open_to_write: Open, show: Show) -> None:
        self._token = token.encode()
        self._open = open_to_write
        self._show = show

    def routes(self) -> list[Route]:
        return [
            Route("/replay", self._replay, methods=["POST"]),
            Route("/abort", self._abort, methods=["POST"]),
        ]

    async def _replay(self, request: Request) -> Response:
        form = await self._form(request)
        topic = form.get("topic", "")
        chosen = (
            [(_number(form, "partition"), _number(form, "offset"))] if "offset" in form else None
        )

        def replay() -> str:
            with self._open() as db:
                report = db.dead_letters(topic).replay(chosen)
            skipped = f"; {report.skipped} had been sent back before" if report.skipped else ""
            return f"{counted(report.replayed, 'dead letter')} of {topic} sent back{skipped}."

        return self._show(await run_in_threadpool(replay))

    async def _abort(self, request: Request) -> Response:
        form = await self._form(request)
        tp = TopicPartition(form.get("topic", ""), _number(form, "partition"))
        offset = _number(form, "offset")

        def abort() -> str:
            with self._open() as db:
                outcome = db.admin.abort_transaction(tp, offset)
            where = f"{tp.topic}-{tp.partition}, offset {offset}"
            return f"The transaction that begins at {where} has ended with {outcome}."

        return self._show(await run_in_threadpool(abort))

    async def _form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of the form after checking its token."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_MAX:
                raise HTTPException(413, f"the form has more than {_BODY_MAX} bytes")
        form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
        if not hmac.compare_digest(form.pop("token", "").encode(), self._token):
            raise HTTPException(
                403,
                "nothing was changed: the token is missing or wrong. It is in the address that "
                "`eosdb ui --allow-changes` printed",
            )
        return form


def _number(form: Mapping[str, str], name: str) -> int:
    given = form.get(name, "")
    if not (given.isascii() and given.isdigit()) or len(given) > 18:
        raise HTTPException(400, f"nothing was changed: {name}: got {given!r}, expected a number")
    return int(given)
