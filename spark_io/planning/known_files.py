"""Remembers the state of many files, so that only changed files are opened again (decisions/0036).

A file and its WAL are compared by inode, size and times. Equal values do not prove that nothing changed: a
file may change twice within one tick of its times, and a commit becomes readable an instant after its write
to the WAL. So an entry is trusted only if the file had not changed for a while before it was opened. Each
pass also reopens the least recently opened files, so that no change is missed for ever.
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
from eosdb.spark_io.planning import files

T = TypeVar("T")
R = TypeVar("R")

_A_WHILE_MS: Final = 3_000
"""A file with recent times is trusted once it was seen unchanged for this long: the coarsest timestamps
(FAT) have ticks of two seconds."""
_AGAIN: Final = 50
"""The trusted files that each pass reopens, in some 40 ms."""
_AT_ONCE: Final = min(max(os.cpu_count() or 1, 2), 8)
_CHUNK: Final = 32
_MANY: Final = 500
"""Below this number of files, starting child processes takes longer than opening the files."""


class Look(Protocol):
    """The state of a file, as `KnownFiles` needs it."""

    @property
    def file_id(self) -> str: ...

    @property
    def mark(self) -> str: ...


F = TypeVar("F", bound=Look)
MarksOf = Callable[[str], Collection[str]]


@dataclass(slots=True)
class _Entry(Generic[F]):
    stamp: Stamp
    since_ms: int
    """When the file first had this stamp (monotonic)."""
    is_trusted: bool
    look: F | EosdbError
    checked: frozenset[str]
    """The marks that `look` was compared with."""


class KnownFiles(Generic[F]):
    """Caches the results of `look`, which opens a file and raises EosdbError if it is unreadable. Not
    thread-safe."""

    def __init__(self, look: Callable[[str, MarksOf], F], clock: Clock | None = None) -> None:
        self._look: Final = look
        self._clock: Final = clock or SystemClock()
        self._entries: dict[str, _Entry[F]] = {}
        self.looked_at = 0

    def looks(
        self, paths: Sequence[str], marks_of: MarksOf = lambda file_id: ()
    ) -> dict[str, F | EosdbError]:
        """The state of each file, or the error of reading it."""
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

        here = [one for one in due if not files.is_remote(one[0])]
        due = here + [one for one in due if files.is_remote(one[0])]
        fresh = [*in_processes(entry_of, here), *in_parallel(entry_of, due[len(here) :])]
        for (path, stamp), entry in zip(due, fresh, strict=True):
            entries.pop(path, None)
            if stamp is not None:
                entries[path] = entry
        gone = {p: e.look for (p, s), e in zip(due, fresh, strict=True) if s is None}
        self.looked_at = len(due)
        return {path: entries[path].look if path in entries else gone[path] for path in paths}

    def forget_others(self, paths: Iterable[str]) -> None:
        named = frozenset(paths)
        for path in [path for path in self._entries if path not in named]:
            del self._entries[path]

    def _entry(
        self, path: str, stamp: Stamp | None, marks_of: MarksOf, now: int, old_ns: int
    ) -> _Entry[F]:
        checked: frozenset[str] = frozenset()

        def requested_marks(file_id: str) -> Collection[str]:
            nonlocal checked
            checked = frozenset(marks_of(file_id))
            return checked

        look: F | EosdbError
        try:
            look = self._look(path, requested_marks)
        except EosdbError as error:
            look = error.with_traceback(None)
        before = self._entries.get(path)
        stamp = stamp or Stamp((), None)
        since = before.since_ms if before is not None and before.stamp == stamp else now
        # The stamp precedes the look, so a change during the look gives the file another stamp.
        is_trusted = (
            now - since >= _A_WHILE_MS or (stamp.newest_ns if stamp.database else 0) < old_ns
        )
        return _Entry(stamp, since, is_trusted, look, checked)


def in_processes(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results, which must be picklable, in order. Child processes open many files: threads
    that read schemas block each other inside SQLite."""
    # decisions/0019: the child processes inherit no SQLite connection; each opens its own.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if len(items) < _MANY or cores < 2:
        return [function(item) for item in items]
    pool = ProcessPoolExecutor(
        min(cores, 8), multiprocessing.get_context("fork"), _work_at, (function, items)
    )
    try:
        with pool:
            chunks = pool.map(_done, range(0, len(items), _CHUNK))
            return [result for chunk in chunks for result in chunk]
    except BrokenProcessPool:
        return [function(item) for item in items]


_work: tuple[Callable[[Any], Any], Sequence[Any]]
"""In a child process: the function and all items, inherited by fork."""


def _work_at(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _work
    _work = function, items


def _done(begin: int) -> list[Any]:
    function, items = _work
    return [function(item) for item in items[begin : begin + _CHUNK]]


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results in order, computed by threads. For functions that wait for a network or files."""
    if len(items) <= _CHUNK:
        return [function(item) for item in items]
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
    with ThreadPoolExecutor(_AT_ONCE, "eosdb-look") as pool:
        with threads.needed("looking at files"):
            results = pool.map(lambda chunk: [function(item) for item in chunk], chunks)
        return [result for chunk in results for result in chunk]


def _covers(entry: _Entry[F], marks_of: MarksOf) -> bool:
    """Whether the entry was compared with all these marks. Its own mark needs no comparison."""
    if isinstance(entry.look, EosdbError):
        return True
    own = entry.look.mark
    return all(mark == own or mark in entry.checked for mark in marks_of(entry.look.file_id))
