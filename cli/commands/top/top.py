"""`eosdb top`: the activity of a file on a terminal, refreshed like `top`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.session import Session
from eosdb.cli.stopping import until_stopped
from eosdb.model.clock import SystemClock

from . import screen as top_screen
from .reader import Reader
from .screen import DELAY_MAX, DELAY_MIN, View

_FIRST_S: Final = 0.6
"""Delay of the second reading, which gives the first rates."""


@click.command(cls=FileCommand)
@click.option(
    "-d", "--delay", "delay_s", type=click.FloatRange(DELAY_MIN, DELAY_MAX), default=2.0,
    show_default=True, metavar="SECONDS", help="Time between two readings.",
)  # fmt: skip
@click.option(
    "-n", "--iterations", "iterations", type=click.IntRange(min=1), metavar="COUNT",
    help="Stop after this many readings.",
)  # fmt: skip
@click.option(
    "-b", "--batch", is_flag=True, help="Print plain text with all rows, for files and pipes."
)
def top(session: Session, delay_s: float, iterations: int | None, batch: bool) -> None:
    """Show the activity of a file: lag of groups, open transactions and the records held back by them,
    topics by rate, dead letters, and the growth of the file and its WAL.

    Only reads, and holds no lock or snapshot between two readings. Press h for the keys.

    \b
    Example:
      eosdb top shop.db
      eosdb top shop.db -b -n 2 -d 10 > shop.txt
    """
    view = View(delay_s=delay_s)
    if batch:
        _in_batches(session, view, iterations)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("standard input or output is not a terminal; use -b for plain text")
    try:
        import termios  # noqa: F401 – missing on some systems
    except ModuleNotFoundError:
        raise click.UsageError("this system cannot read single keys (no termios); use -b") from None
    _on_screen(session, view, iterations)


def _in_batches(session: Session, view: View, iterations: int | None) -> None:
    until_stopped()
    clock = SystemClock()
    done = 0
    with Reader(session) as reader:
        reading = reader.first()
        while True:
            output.lines(top_screen.batch(reading, reader.note, view))
            sys.stdout.flush()
            done += 1
            if iterations is not None and done >= iterations:
                return
            clock.sleep_ms(round(view.delay_s * 1000))
            reading = reader.read() or reading


def _on_screen(session: Session, view: View, iterations: int | None) -> None:
    from .terminal import Stopped, Terminal

    clock = SystemClock()
    terminal = Terminal()
    with Reader(session) as reader:
        reading = reader.first()
        done, due = 1, clock.monotonic_ms() + round(min(view.delay_s, _FIRST_S) * 1000)
        try:
            with terminal.held():
                while True:
                    lines, view = top_screen.frame(reading, reader.note, view, *terminal.size())
                    terminal.paint(lines)
                    for key in terminal.keys((due - clock.monotonic_ms()) / 1000):
                        view = top_screen.press(view, key, *terminal.size())
                        if view.quit:
                            return
                    now = clock.monotonic_ms()
                    if view.refresh or now >= due:
                        if iterations is not None and done >= iterations:
                            return
                        reading = reader.read() or reading
                        done += 1
                        due = clock.monotonic_ms() + round(view.delay_s * 1000)
                        view = replace(view, refresh=False)
        except Stopped as stopped:
            sys.exit(128 + stopped.which)
