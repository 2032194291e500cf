"""A breadth-first search through all states of the real broker under a few clients.

A state is known by its path of moves. The search keeps the tree of first paths, and walks it again for each
level: only the nodes on the way to unexpanded states are carried out again. So the first violation has a
shortest history.

A `World` has the moves of its clients, whose states are plain values, and the invariants. States are
compared as texts: ids are renamed by their order, times are relative, and equal clients may change places.
"""

from __future__ import annotations

import itertools
import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Final, TypeVar

from tests.explore.box import Box
from tests.simulation.model import Violation, require

Move = tuple[Any, ...]
S = TypeVar("S")
_ID: Final = re.compile(r"\b(?:pid|m)-\d+")
_CLIENT: Final = re.compile(r"~(\w)")


class World(ABC):
    """Some clients and faults at one file. A state of theirs is a hashable value of the class `state`: the
    clients, how often each fault may still happen, and the copy of the file, if one may be made."""

    state: ClassVar[Any] = tuple
    config: ClassVar[dict[str, Any]] = {}
    symmetries: Collection[dict[str, str]] = ({},)
    """How clients may change places, by their letters; the first changes nothing."""
    sample = 16
    """The dearer invariants are checked in one of so many states."""

    def __init__(self, **scope: Any) -> None:
        self.limits = {n: scope[n] for n in scope if n in getattr(self.state, "_fields", ())}
        for name in scope.keys() - self.limits:
            require(hasattr(self, name), f"no such part of a scope: {name}")
            setattr(self, name, scope[name])
        self.box = Box(**self.config)
        self.prepare()
        if "copies" in self.limits:
            self.box.unguard()
        self.box.freeze()

    @abstractmethod
    def prepare(self) -> None:
        """Topics and the like, before the file is frozen."""

    @abstractmethod
    def start(self) -> Any: ...

    @abstractmethod
    def moves(self, state: Any) -> Iterable[Move]: ...

    @abstractmethod
    def make(self, state: Any, move: Move) -> Any:
        """The state after the move; None if it changes nothing."""

    @abstractmethod
    def tables(self) -> Iterable[object]:
        """The rows that the future depends on."""

    @abstractmethod
    def parts(self, state: Any) -> Iterable[object]:
        """All else that it depends on, as unordered parts."""

    def all_moves(self, state: Any) -> Iterable[Move]:
        yield from self.moves(state)
        if getattr(state, "copies", 0):
            yield ("copy",)
        if getattr(state, "copy", None) is not None:
            yield ("restore",)

    def after(self, state: Any, move: Move) -> Any:
        """The state after any move."""
        if move == ("copy",):
            return state._replace(copies=state.copies - 1, copy=(self.box.copy(), self.copied()))
        if move != ("restore",):
            return self.make(state, move)
        self.box.restore(state.copy[0])
        return self.restored(state._replace(copy=None))

    def copied(self) -> list[object]:
        """What the future depends on of a copy that is made now."""
        return [*self.tables()]

    def restored(self, state: Any) -> Any:
        """What the clients may expect of the copy."""
        return state

    def look(self) -> Any:
        """What `check` compares with the file after the move."""
        return None

    @abstractmethod
    def check(self, state: Any, before: Any) -> None:
        """Raise Violation if an invariant does not hold."""

    def check_more(self, state: Any) -> None:
        self.box.verify()

    def is_done(self, state: Any) -> bool:
        """Whether nobody waits for anything."""
        return True

    def hash_of(self, state: Any) -> bytes:
        parts = *self.tables(), *self.parts(state), self.box.memory()
        texts = [repr(part) for part in parts]
        if getattr(state, "copy", None) is not None:
            texts += [f"copied {part!r}" for part in state.copy[1]]
        whole = "\n".join(texts)
        names = {name: str(i) for i, name in enumerate(sorted({*_ID.findall(whole)}))}
        named = _ID.sub(lambda m: names[m[0]], whole).split("\n")
        found = min("\n".join(sorted(_renamed(named, letters))) for letters in self.symmetries)
        return blake2b(found.encode(), digest_size=12).digest()


def with_client(state: S, client: Any) -> S:
    """The state after a client has become this."""
    before: Any = state
    clients = tuple(client if each.name == client.name else each for each in before.clients)
    after: S = before._replace(clients=clients)
    return after


def places(kinds: Sequence[object]) -> list[dict[str, str]]:
    """How clients of the same kind may change places; one of the kind None keeps its own."""
    letters = "abcd"[: len(kinds)]
    of = dict(zip(letters, kinds, strict=True))
    return [
        changed
        for order in itertools.permutations(letters)
        if all(a == b or of[a] == of[b] is not None for a, b in zip(letters, order, strict=True))
        for changed in [{a: b for a, b in zip(letters, order, strict=True) if a != b}]
    ]


def _renamed(texts: list[str], letters: dict[str, str]) -> Iterable[str]:
    if not letters:
        return texts
    return (_CLIENT.sub(lambda m: "~" + letters.get(m[1], m[1]), text) for text in texts)


@dataclass
class Result:
    states: int = 1
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_complete: bool = True
    violation: str | None = None
    path: list[Move] = field(default_factory=list)

    def __str__(self) -> str:
        how = "complete" if self.is_complete else "cut"
        if self.violation is not None:
            how = f"VIOLATION after {len(self.path)} moves: {self.violation}"
        counts = (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.depth} moves deep"
        )
        return f"{counts}, {self.seconds:.0f} s, {how}"


def explore(world: World, limit_s: float = 3_600, most: int = 10**9) -> Result:
    """Search until the first violation, the end, or a limit of seconds or states."""
    return _Search(world, limit_s, most).run()


class _Search:
    def __init__(self, world: World, limit_s: float, most: int) -> None:
        self._world, self._most, self._start = world, most, world.start()
        self._ends, self._began = time.monotonic() + limit_s, time.monotonic()
        self._result = Result()
        self._from: list[tuple[int, Move]] = [(-1, ())]
        """For each state the one before it on a shortest path, and the move."""
        self._before: dict[int, list[int]] = defaultdict(list)
        """For each state those before it on any path."""
        self._known = {world.hash_of(self._start): 0}
        self._done = {0} if world.is_done(self._start) else set[int]()

    def run(self) -> Result:
        result, level = self._result, [0]
        try:
            while level and self._is_in_time():
                self._next: list[int] = []
                below = self._tree(level)
                self._walk(0, self._start, below, {*level})
                level = self._next
                result.depth += bool(level)
            result.is_complete = not level and self._is_in_time()
            if result.is_complete:
                self._check_ends()
        except Violation as error:
            result.violation, result.is_complete = str(error), False
        result.states, result.seconds = len(self._from), time.monotonic() - self._began
        return result

    def _is_in_time(self) -> bool:
        return time.monotonic() < self._ends and len(self._from) < self._most

    def _tree(self, level: list[int]) -> dict[int, list[int]]:
        """The children of each state on the way to the level."""
        below: dict[int, list[int]] = {}
        for number in level:
            while number:
                before = self._from[number][0]
                is_new = before not in below
                below.setdefault(before, []).append(number)
                if not is_new:
                    break
                number = before
        return below

    def _walk(self, number: int, state: Any, below: dict[int, list[int]], level: set[int]) -> None:
        if number in level:
            self._expand(number, state)
        for child in below.get(number, ()):
            with self._world.box.trial():
                after = self._world.after(state, self._from[child][1])
                assert after is not None
                self._walk(child, after, below, level)

    def _expand(self, number: int, state: Any) -> None:
        world = self._world
        for move in world.all_moves(state):
            if not self._is_in_time():
                return
            try:
                with world.box.trial():
                    self._try(number, state, move)
            except Exception as error:
                self._result.path = [*self._path(number), move]
                if isinstance(error, Violation):
                    raise
                raise Violation(f"{type(error).__name__}: {error}"[:300]) from error

    def _try(self, number: int, state: Any, move: Move) -> None:
        world, before = self._world, self._world.look()
        after = world.after(state, move)
        if after is None:
            return
        self._result.transitions += 1
        world.check(after, before)
        key = world.hash_of(after)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._from)
            self._from.append((number, move))
            self._next.append(found)
            if world.is_done(after):
                self._done.add(found)
            if found % world.sample == 0:
                world.check_more(after)
        self._before[found].append(number)

    def _path(self, number: int) -> list[Move]:
        path = []
        while number:
            number, move = self._from[number]
            path.append(move)
        return path[::-1]

    def _check_ends(self) -> None:
        """Check that from every state some path leads to a state in which nobody waits."""
        able, found = {*self._done}, [*self._done]
        while found:
            fresh = {*itertools.chain.from_iterable(self._before.pop(n, ()) for n in found)} - able
            able |= fresh
            found = [*fresh]
        stuck = next((n for n in range(len(self._from)) if n not in able), None)
        if stuck is not None:
            self._result.path = self._path(stuck)
            raise Violation("from here nobody can finish")


def replay_path(world: World, path: Iterable[Move]) -> list[str]:
    """Carry out the moves of a history, and return its calls. Raises Violation."""
    state, world.box.history = world.start(), []
    with world.box.trial():
        for move in path:
            before = world.look()
            state = world.after(state, move)
            assert state is not None, move
            world.check(state, before)
        world.check_more(state)
    return world.box.history
