"""Handlers of Ctrl-C and SIGTERM for all commands. A command that runs until it is stopped installs its own
meanwhile (`eosdb.system.signals`).

A KeyboardInterrupt during an import prints an unrelated traceback, or is lost in a callback of the import
system. So before and after the command itself, Ctrl-C exits at once. The modules for opening a file, and
those of producer and consumer, are imported before the command runs: later a signal may raise, and another
thread may fork (decisions/0018, decisions/0019).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as in shells: 128 plus the number of the signal."""
_heard: Final[list[int]] = []
_is_program: Final[list[bool]] = []
"""Not empty if the commands are this process's program, and not called by another one."""


def leave(*_: object) -> NoReturn:
    """Exit at once. Handles Ctrl-C while there is nothing to clean up."""
    os._exit(INTERRUPTED)


def leaving_on_interrupt() -> None:
    """Ctrl-C ends the process at once, unless the caller ignores it (a shell's `&`)."""
    _is_program.append(True)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _interrupt):
        signal.signal(signal.SIGINT, leave)


def raising_on_interrupt() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, so that the command cleans up. A second
    Ctrl-C ends the process. Signals that the caller ignores stay ignored (a shell's `&`: Ctrl-C)."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, _interrupt)
    if _is_program:
        for which in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(which) is signal.SIG_DFL:
                signal.signal(which, _interrupt)


def until_stopped() -> None:
    """From now on, Ctrl-C and SIGTERM are the normal end of the current command."""
    import click  # Imported here, so that Ctrl-C is handled before this slow import.

    click.get_current_context().meta[__name__] = True


def is_normal_end(meta: Mapping[str, object]) -> bool:
    """Whether the command has called `until_stopped`. `meta` is that of its click context."""
    return __name__ in meta


def exit_status() -> int:
    """The exit status after a KeyboardInterrupt: 128 plus the number of the signal."""
    return 128 + _heard[0] if _heard else INTERRUPTED


def _interrupt(number: int, _: object) -> NoReturn:
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The first SIGTERM is being handled.
    _heard.append(number)
    raise KeyboardInterrupt
