"""The service manager that started this process (systemd, `Type=notify`) hears when it is ready."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
"""The variable that names the manager's socket; a leading @ stands for the abstract namespace."""


@contextlib.contextmanager
def ready_for_service_manager() -> Iterator[None]:
    """Say that the process is ready for the length of the block, and then that it stops; nothing where
    nobody asked for it."""
    _say("READY=1")
    try:
        yield
    finally:
        _say("STOPPING=1")


def _say(state: str) -> None:
    name = os.environ.get(_SOCKET, "")
    if not name.startswith(("/", "@")):
        return
    address = name.replace("@", "\0", 1) if name.startswith("@") else name
    with (
        contextlib.suppress(OSError),  # A manager that has gone needs no word.
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        sock.sendto(state.encode(), address)
