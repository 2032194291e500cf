"""Accepting connections on a listening socket, and closing all sockets in a forked child.

A forked child inherits the sockets of its parent, but not the threads that serve them. It closes its copies
at once and sends nothing: otherwise a client would wait for a response on a connection that the parent has
long closed, and the port would stay in use (decisions/0031).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from eosdb.errors import StorageError
from eosdb.model.notices import catalog

_PAUSE_S: Final = 0.2
"""How long accepting pauses when no file descriptor is left."""
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6),
)  # fmt: skip
"""TCP keepalive, where the system has these options (the first is called TCP_KEEPALIVE on macOS): a client
whose machine is gone is noticed after two minutes."""


class Inherited(Protocol):
    """An object with sockets that a forked child inherits."""

    def forget(self) -> None:
        """Close the sockets in the child, without touching anything that the parent uses."""


class _Process:
    def __init__(self) -> None:
        self.accepting = threading.RLock()
        """Held while a connection is accepted and registered, and during a fork, so that a child knows
        every socket. A signal handler may fork amid another fork."""
        self.servers: weakref.WeakSet[Inherited] = weakref.WeakSet()


_process = _Process()


def is_inherited(server: Inherited) -> None:
    """Make every forked child call `server.forget()`."""
    _process.servers.add(server)


def accept(
    listener: socket.socket,
    is_closed: threading.Event,
    take: Callable[[socket.socket, str], None],
    make_room: Callable[[], object],
) -> None:
    """Call `take` with each new connection and its address, until the listener is shut down.

    If no file descriptor, thread or memory is left, `make_room` is called, and accepting pauses; this is
    logged once until it succeeds again.
    """
    listener.setblocking(False)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    is_failing = False
    while not is_closed.is_set():
        try:
            poll.poll()
            with _process.accepting:
                if is_closed.is_set():
                    return
                sock, address = listener.accept()
                take(sock, address[0])
            is_failing = False
        except (BlockingIOError, ConnectionAbortedError):  # It has gone already.
            continue
        except (OSError, StorageError, RuntimeError, MemoryError) as error:
            # No descriptor, thread, memory left.
            with contextlib.suppress(MemoryError):  # The server would be deaf without this thread.
                if not is_closed.is_set() and not is_failing:
                    catalog.CANNOT_ACCEPT.say(error=error)
                is_failing = True
                make_room()
                is_closed.wait(_PAUSE_S)


def prepare(sock: socket.socket) -> None:
    """Set the options of every connection: responses are sent at once, and a vanished client is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _before() -> None:
    _process.accepting.acquire()


def _after_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # An interrupt came before it was acquired.
        _process.accepting.release()


def _begin_as_a_child() -> None:
    global _process
    parents, _process = _process, _Process()
    for server in list(parents.servers):
        server.forget()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_begin_as_a_child
)
