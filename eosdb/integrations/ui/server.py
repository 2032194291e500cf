"""Serves the pages on loopback, from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Final, Self

import uvicorn

from eosdb.database import Database
from eosdb.errors import ListenError, StorageError
from eosdb.integrations.ui.app import make_app
from eosdb.model.closing import Closeable
from eosdb.model.threads import Thread

_HOST: Final = "127.0.0.1"


class UiServer(Closeable):
    """Context manager that serves the pages of an open file at `url`, from a thread of this process.

    With `open_to_write`, which opens the file for one change, users who know `token` can make the changes
    that docs/ui.md lists. Port 0 takes a free port. Raises ListenError if the port is in use.
    """

    def __init__(
        self, db: Database, port: int = 0, *, open_to_write: Callable[[], Database] | None = None
    ) -> None:
        self._socket: Final = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((_HOST, port))
            self._socket.listen(128)  # Connections queue until the thread accepts them.
        except OSError as error:
            self._socket.close()
            raise ListenError(
                f"{_HOST}:{port}: {error.strerror}; choose another port, or 0 for a free one"
            ) from None
        self.port: Final[int] = self._socket.getsockname()[1]
        self.token: Final = "" if open_to_write is None else secrets.token_urlsafe(24)
        app = make_app(
            db,
            self.port,
            token=self.token,
            open_to_write=open_to_write,
            stopping=lambda: self._server.should_exit,
        )
        # Streams of live changes do not end by themselves, so the server does not wait for them.
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
        """Leave signals to the program."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Also drop the connections that uvicorn has given up on, or accepted while it was stopping: its
        event loop ends, and nobody else would close them."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
