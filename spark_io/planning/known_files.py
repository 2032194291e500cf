"""What is known of many files, so that only those that have changed are opened again.

A file and its write-ahead log are compared by inode, size and times. That is not proof: a file may change
again within the same tick of the clock of its times, and a commit is readable an instant after its write to
the log. So an entry is trusted only when the file had been left alone for a while before it was looked at;
and in each pass a few entries are looked at again whatever they say, the oldest first, so that no file
stays overlooked for ever (decisions/0036).
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from eosdb.admin.summary import LONG_AGO_NS, Stamp, stamp_of
from eosdb.errors import EosdbError
from eosdb.model import threads
from eosdb.model.clock import Clock, SystemClock

from . import remote

T = TypeVar("T")
R = TypeVar("R")

_A_WHILE_MS: Final = 3_000
"""A file with younger times has been left alone if it is seen unchanged for so long: the coarsest times
(FAT) have ticks of two seconds."""
_AGAIN: Final = 50
"""How many files each pass looks at again: some 40 ms."""
_AT_ONCE: Final = min(max(os.cpu_count() or 1, 2), 8)
"""Threads."""
_CHUNK: Final = 32
_MANY: Final = 500
"""Fewer files are looked at sooner than children are made."""


class Found(Protocol):
    """What a look finds."""

    @property
    def file_id(self) -> str: ...

    @property
    def mark(self) -> str: ...


F = TypeVar("F", bound=Found)
MarksOf = Callable[[str], Collection[str]]
"""The remembered marks of the file with this id."""


@dataclass(slots=True)
class _Entry(Generic[F]):
    stamp: Stamp
    since_ms: int
    """When the file was first seen like this."""
    is_trusted: bool
    found: F | EosdbError
    checked: frozenset[str]
    """The marks that `found` tells about."""


class Manifest(Generic[F]):
    """`look` opens a file, and raises EosdbError for one that cannot be read. For one thread at a time."""

    def __init__(self, look: Callable[[str, MarksOf], F], clock: Clock | None = None) -> None:
        self._look: Final = look
        self._clock: Final = clock or SystemClock()
        self._entries: dict[str, _Entry[F]] = {}
        """By path; those looked at longest ago come first."""
        self.looked_at = 0
        """How many files the last pass opened."""

    def looks(
        self, paths: Sequence[str], marks_of: MarksOf = lambda file_id: ()
    ) -> dict[str, F | EosdbError]:
        """What is in each file, or why it cannot be read. Files that are not named are left alone."""
        entries, now = self._entries, self._clock.monotonic_ms()
        old_ns = self._clock.time_ms() * 1_000_000 - LONG_AGO_NS
        again = frozenset(itertools.islice(entries, _AGAIN))
        due: list[tuple[str, Stamp | None]] = []
        for path in paths:
            stamp, entry = stamp_of(path), entries.get(path)
            if (
                entry is None
                or stamp != entry.stamp
                or not entry.is_trusted
                or path in again
                or not _covers(entry, marks_of)
            ):
                due.append((path, stamp))

        def entry_of(one: tuple[str, Stamp | None]) -> _Entry[F]:
            return self._entry(*one, marks_of, now, old_ns)

        here = [one for one in due if not remote.is_remote(one[0])]
        due = here + [one for one in due if remote.is_remote(one[0])]
        made = [*in_processes(entry_of, here), *in_parallel(entry_of, due[len(here) :])]
        for (path, stamp), entry in zip(due, made, strict=True):
            entries.pop(path, None)
            if stamp is not None:
                entries[path] = entry
        gone = {p: e.found for (p, s), e in zip(due, made, strict=True) if s is None}
        self.looked_at = len(due)
        return {path: entries[path].found if path in entries else gone[path] for path in paths}

    def forget_others(self, paths: Iterable[str]) -> None:
        """Keep only what is known of these files."""
        named = frozenset(paths)
        for path in [path for path in self._entries if path not in named]:
            del self._entries[path]

    def _entry(
        self, path: str, stamp: Stamp | None, marks_of: MarksOf, now: int, old_ns: int
    ) -> _Entry[F]:
        checked: frozenset[str] = frozenset()

        def asked(file_id: str) -> Collection[str]:
            nonlocal checked
            checked = frozenset(marks_of(file_id))
            return checked

        found: F | EosdbError
        try:
            found = self._look(path, asked)
        except EosdbError as error:
            found = error.with_traceback(None)
        before = self._entries.get(path)
        stamp = stamp or Stamp((), None)
        since = before.since_ms if before is not None and before.stamp == stamp else now
        # The stamp is from before the look: what changes between the two changes the next stamp.
        is_trusted = (
            now - since >= _A_WHILE_MS or (stamp.newest_ns if stamp.database else 0) < old_ns
        )
        return _Entry(stamp, since, is_trusted, found, checked)


def in_processes(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results in order, which must be picklable. Threads that read schemas wait for each other inside
    SQLite; so many files are looked at by children of this process."""
    # decisions/0019: nothing of SQLite's is inherited, and a child opens its own.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if len(items) < _MANY or cores < 2:
        return [function(item) for item in items]
    pool = ProcessPoolExecutor(
        min(cores, 8), multiprocessing.get_context("fork"), _work_at, (function, items)
    )
    try:
        with pool:
            chunks = pool.map(_done, range(0, len(items), _CHUNK))
            return [one for chunk in chunks for one in chunk]
    except BrokenProcessPool:
        return [function(item) for item in items]


_work: tuple[Callable[[Any], Any], Sequence[Any]]
"""In a child: what it inherited to do."""


def _work_at(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _work
    _work = function, items


def _done(begin: int) -> list[Any]:
    function, items = _work
    return [function(item) for item in items[begin : begin + _CHUNK]]


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results in order, by threads: for what waits for a network or for files."""
    if len(items) <= _CHUNK:
        return [function(item) for item in items]
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
    with ThreadPoolExecutor(_AT_ONCE, "eosdb-look") as pool:
        with threads.needed("looking at files"):
            found = pool.map(lambda chunk: [function(item) for item in chunk], chunks)
        return [one for chunk in found for one in chunk]


def _covers(entry: _Entry[F], marks_of: MarksOf) -> bool:
    """Whether it is known of all these marks if they belong to the file. Its present mark does."""
    if isinstance(entry.found, EosdbError):
        return True
    own = entry.found.mark
    return all(mark == own or mark in entry.checked for mark in marks_of(entry.found.file_id))
