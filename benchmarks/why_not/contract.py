"""What every system is asked to do, in the same words, and how its results are judged."""

from __future__ import annotations

import inspect
import itertools
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

Handle = Callable[[str], str]
"""The work: what a message's value becomes."""
FOREVER = 10**9


@dataclass(frozen=True, slots=True)
class Server:
    """Where a system is reached, and the processes (the roots of their trees) that have to run for it."""

    address: str
    pids: tuple[int, ...] = ()
    data: Path | None = None
    """What it keeps on disk; None when it cannot be looked at."""


class Driver(ABC):
    """One system, set up and used as its own documentation recommends for durability.

    `run` names the queue, file or topic of one run. `lease_s` is how long a message stays with a silent
    worker.
    """

    name: ClassVar[str]
    durable: ClassVar[str]
    """The setting, in words: what an acknowledgement has survived."""
    modules: ClassVar[Sequence[str]] = ()
    programs: ClassVar[Sequence[str]] = ()
    in_batches: ClassVar[bool] = True
    """Whether a worker can acknowledge several messages at once."""
    lease_min_s: ClassVar[float] = 0.0

    def __init__(self, address: str, run: str, lease_s: float = 0.0) -> None:
        self.address, self.run, self.lease_s = address, run, max(lease_s, self.lease_min_s)

    @classmethod
    def absent(cls) -> str | None:
        """Why it cannot take part; None when it can."""
        missing = [name for name in cls.modules if not find_spec(name)]
        missing += [name for name in cls.programs if not shutil.which(name)]
        return f"{', '.join(missing)} not installed" if missing else None

    @classmethod
    def serve(cls, folder: Path) -> AbstractContextManager[Server]:
        """What has to run for it: nothing, for a library over a file."""
        return _files(folder)

    @abstractmethod
    def create(self) -> None:
        """Make the queue and the place for the results."""

    @abstractmethod
    def produce(self, values: Iterable[str], size: int) -> None:
        """Send them in order; return when all are durable. `size` of them are acknowledged at a time."""

    @abstractmethod
    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        """Read, handle, store the result, acknowledge, `size` at a time.

        Ends after `limit` messages, or when none came for `idle_s`.
        """

    @abstractmethod
    def results(self) -> list[str]:
        """What a reader of the results sees, in its order."""

    def inputs(self) -> list[str]:
        """What a reader of the queue sees: for systems whose answers can be lost."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what a reader or a producer holds."""
        return

    @classmethod
    def worker_lines(cls) -> int:
        """Lines of code of the worker, its way of finding what a dead one left included."""
        return code_lines(inspect.getsource(cls.work))


@contextmanager
def _files(folder: Path) -> Iterator[Server]:
    yield Server(str(folder), data=folder)


def value_of(number: int) -> str:
    """A message of 100 characters."""
    return f"{number:08d}".ljust(100, ".")


def number_of(value: str) -> int:
    return int(value[:8])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of messages 0 … sent-1."""

    lost: int
    duplicated: int
    """Results that are there once more than they should be, counted each time."""
    late: int
    """Messages whose first result stands behind that of a later message."""

    @property
    def exactly_once(self) -> bool:
        return not self.lost and not self.duplicated


def judge(sent: int, results: Sequence[int]) -> Verdict:
    """Compare the results, in the reader's order, with what was sent."""
    counts = Counter(results)
    unknown = [number for number in counts if not 0 <= number < sent]
    if unknown:
        raise ValueError(f"results of messages that were not sent: {unknown[:5]}")
    firsts = list(dict.fromkeys(results))
    highest = itertools.accumulate(firsts, max)
    return Verdict(
        lost=sent - len(counts),
        duplicated=len(results) - len(counts),
        late=sum(number < high for number, high in zip(firsts, highest, strict=True)),
    )


def code_lines(source: str) -> int:
    """Lines that are neither empty, nor a comment, nor a docstring of one line."""
    lines = (line.strip() for line in source.splitlines())
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


def chunks(values: Iterable[str], size: int) -> Iterator[list[str]]:
    """`itertools.batched`, which Python 3.11 does not have."""
    rest = iter(values)
    while some := list(itertools.islice(rest, size)):
        yield some
