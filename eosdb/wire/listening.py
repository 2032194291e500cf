"""The listening sockets of a server: all addresses of a host name share one port.

A forked child inherits its parent's sockets, but not the threads that serve them. It closes its copies at
once and sends nothing (decisions/0031). Otherwise a client would wait on a connection that the parent has
long closed, and the port would stay in use.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import select
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from eosdb.errors import ConfigError, ListenError, StorageError
from eosdb.model.notices import catalog
from eosdb.model.validation import check_text

LOOPBACK: Final = "localhost"
"""The name for the machine's loopback addresses; its resolver is not asked."""
_LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_TRIES: Final = 50
"""A port that is free at one address may be in use at the next, so several are tried."""
_BACKLOG: Final = 128
_HOST_AND_PORT: Final = re.compile(
    r"(?:\[(?P<in_brackets>[0-9a-fA-F:.]+)\]|(?P<host>[^\s\[\]:/,]+)):(?P<port>[0-9]{1,5})"
)

_PAUSE_S: Final = 0.2
"""How long accepting pauses after a lack of file descriptors, threads or memory."""
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6),
)  # fmt: skip
"""TCP keepalive, where the system has these options (macOS calls the first one TCP_KEEPALIVE): a vanished
machine is noticed after two minutes."""


def check_port(port: object) -> int:
    """Raises ConfigError."""
    if isinstance(port, int) and not isinstance(port, bool) and 0 <= port <= 65_535:
        return port
    raise ConfigError(f"port: got {port!r}, expected a whole number from 0 (a free one) to 65535")


def addresses_of(host: object) -> list[str]:
    """The IP addresses of an address or host name. Raises ConfigError and ListenError."""
    name = check_text("host", host, ConfigError)
    if name == LOOPBACK:
        return list(_LOOPBACK_ADDRESSES)
    if not name or "\0" in name:
        raise ConfigError(f"host: got {name!r}, expected an address such as 127.0.0.1, or a name")
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"{name}: no address found for it ({_reason(error)})") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


def is_loopback(address: str) -> bool:
    """Whether the address is reachable from this machine only."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def check_advertised(address: object) -> tuple[str, int]:
    """Host and port of the address to which clients are sent. Raises ConfigError."""
    text = check_text("advertised", address, ConfigError)
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or not 1 <= int(found["port"]) <= 65_535:
        raise ConfigError(
            f"advertised: got {text!r}, expected HOST:PORT such as kafka.example.org:9092"
        )
    return found["in_brackets"] or found["host"], int(found["port"])


def listen(addresses: list[str], port: int) -> list[socket.socket]:
    """Open a listening socket for each address, all on one port; 0 takes a free port. Skips addresses
    that this machine does not have. Raises ListenError."""
    for _ in range(_TRIES if port == 0 else 1):
        try:
            return _listen(addresses, port)
        except ListenError as error:
            last = error
    raise last


def _listen(addresses: list[str], port: int) -> list[socket.socket]:
    with contextlib.ExitStack() as cleanup:
        sockets: list[socket.socket] = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                sock = socket.create_server((address, port), family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno in _NOT_HERE and len(addresses) > 1:
                    missing = error
                    continue
                raise not_listening(address, port, error) from error
            sockets.append(cleanup.enter_context(sock))
            port = sock.getsockname()[1]
        if not sockets:
            raise not_listening(addresses[-1], port, missing)
        cleanup.pop_all()
        return sockets


def shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def not_listening(address: str, port: int, error: OSError) -> ListenError:
    what_to_do = {
        errno.EADDRINUSE: "another program listens there; stop it, or choose another port",
        errno.EACCES: "choose a port above 1023",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }.get(error.errno or 0, "choose another address or port")
    return ListenError(f"cannot listen at {shown(address, port)}: {_reason(error)}; {what_to_do}")


def _reason(error: OSError | UnicodeError) -> str:
    """The system's reason alone, because the text of `create_server` is too long for a line."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error)


class Inherited(Protocol):
    """An object with sockets that a forked child inherits."""

    def forget(self) -> None:
        """Close the sockets in the child. Must not touch anything else that the parent uses."""


class _ServedProcess:
    def __init__(self) -> None:
        self.accepting = threading.RLock()
        """Held while a connection is accepted and registered, and during a fork, so that a child knows
        every socket. A signal handler may fork amid another fork."""
        self.servers: weakref.WeakSet[Inherited] = weakref.WeakSet()


_process = _ServedProcess()


def is_inherited(server: Inherited) -> None:
    """Make every forked child call `server.forget()`."""
    _process.servers.add(server)


def accept(
    listener: socket.socket,
    is_closed: threading.Event,
    take: Callable[[socket.socket, str], None],
    make_room: Callable[[], object],
) -> None:
    """Call `take` with each new connection and its address, until the listener is shut down. If
    descriptors, threads or memory run out, calls `make_room` and pauses; this is logged once until
    accepting succeeds again."""
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
        except (BlockingIOError, ConnectionAbortedError):  # The client has left already.
            continue
        except (OSError, StorageError, RuntimeError, MemoryError) as error:
            # No file descriptor, thread or memory is left: `make_room` closes a connection.
            with contextlib.suppress(MemoryError):  # Only this thread accepts clients.
                if not is_closed.is_set() and not is_failing:
                    catalog.CANNOT_ACCEPT.say(error=error)
                is_failing = True
                make_room()
                is_closed.wait(_PAUSE_S)


def prepare(sock: socket.socket) -> None:
    """Set the options of a connection: responses are sent at once, and vanished clients are detected."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Wake a blocked send every half second: it checks whether other connections wait for its memory.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 500_000))
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _before() -> None:
    _process.accepting.acquire()


def _after_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # A signal interrupted `_before`, so no lock is held.
        _process.accepting.release()


def _begin_as_a_child() -> None:
    global _process
    parents, _process = _process, _ServedProcess()
    for server in list(parents.servers):
        server.forget()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_begin_as_a_child
)
