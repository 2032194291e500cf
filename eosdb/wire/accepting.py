"""Taking connections in: one listening socket, and what a fork of the process means for all of them.

A forked child inherits the sockets of its parent, but not the threads that serve them. It closes its
copies at once, without a word to the clients: else a client would wait for an answer on a connection that
the parent has ended long ago, and the port would stay taken (decisions/0031).
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

from eosdb.model.notices import catalog

_PAUSE_S: Final = 0.2
"""How long nobody is accepted when there is no descriptor left."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
"""A client whose machine is gone is noticed after two minutes. As far as the system has these options."""


class Inherited(Protocol):
    """Something with sockets."""

    def forget(self) -> None:
        """In the child: close them, and touch nothing that the parent uses."""


class _Process:
    def __init__(self) -> None:
        self.accepting = threading.Lock()
        """Held while a connection is accepted and noted, and during a fork: none is missed by the child."""
        self.servers: weakref.WeakSet[Inherited] = weakref.WeakSet()


_process = _Process()


def is_inherited(server: Inherited) -> None:
    """Have `server` forget its sockets in every child that is forked."""
    _process.servers.add(server)


def accept(
    listener: socket.socket,
    is_closed: threading.Event,
    take: Callable[[socket.socket, str], None],
) -> None:
    """Give each new connection and its address to `take`, until the listener is shut down.

    Without descriptors it waits a little, and says so once until it goes on.
    """
    listener.setblocking(False)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    is_failing = False
    while not is_closed.is_set():
        poll.poll()
        try:
            with _process.accepting:
                if is_closed.is_set():
                    return
                sock, address = listener.accept()
                take(sock, address[0])
            is_failing = False
        except (BlockingIOError, ConnectionAbortedError):  # It has gone already.
            continue
        except (OSError, RuntimeError) as error:  # No descriptor left, or no thread.
            if not is_closed.is_set() and not is_failing:
                catalog.CANNOT_ACCEPT.say(error=error)
            is_failing = True
            is_closed.wait(_PAUSE_S)


def prepare(sock: socket.socket) -> None:
    """What every connection has: answers leave at once, and a vanished client is noticed."""
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
