"""The listening sockets of a server: the addresses of a name, with one port for all of them."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import socket
from typing import Final

from eosdb.errors import ConfigError, ListenError
from eosdb.model.validation import check_text

LOOPBACK: Final = "localhost"
"""Stands for both loopback addresses, as far as the machine has them, whatever its resolver says."""
_LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_TRIES: Final = 50
"""A free port at one address may be taken at the next; so several ports are tried."""
_BACKLOG: Final = 128
_HOST_AND_PORT: Final = re.compile(
    r"(?:\[(?P<in_brackets>[0-9a-fA-F:.]+)\]|(?P<host>[^\s\[\]:/,]+)):(?P<port>[0-9]{1,5})"
)


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
    """Open a listening socket for each address, all on one port; 0 takes a free port. Raises ListenError.

    Of several addresses, those that this machine does not have are left out.
    """
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
                raise _not_listening(address, port, error) from error
            sockets.append(cleanup.enter_context(sock))
            port = sock.getsockname()[1]
        if not sockets:
            raise _not_listening(addresses[-1], port, missing)
        cleanup.pop_all()
        return sockets


def shown(address: str, port: int) -> str:
    """The address as clients write it in `bootstrap.servers`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _not_listening(address: str, port: int, error: OSError) -> ListenError:
    what_to_do = {
        errno.EADDRINUSE: "another program listens there; stop it, or choose another port",
        errno.EACCES: "choose a port above 1023",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }.get(error.errno or 0, "choose another address or port")
    return ListenError(f"cannot listen at {shown(address, port)}: {_reason(error)}; {what_to_do}")


def _reason(error: OSError | UnicodeError) -> str:
    """The system's reason alone: the text of `create_server` is too long for a line."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error)
