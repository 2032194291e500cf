"""Regular expressions over names in RE2's syntax, matched in time that grows with the names' length alone.

A client of a server chooses the expression, and the server matches it within a write, so nothing here
backtracks: the expression becomes an automaton, whose size and whose work are bounded (decisions/0064).
Names of topics are ASCII, so a class of characters is a mask of 128 bits, and one more for all others: a
class may leave others out or take them in, and none is told from another.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Final

from eosdb.errors import InvalidRegularExpressionError

_MAX_PROGRAM: Final = 20_000
"""The most steps that an expression may be compiled to."""
_MAX_WORK: Final = 200_000
"""The most steps that are followed to match one expression with all names; what was followed once is
remembered, so that expressions of the usual kind need a few hundred."""
_MAX_DEPTH: Final = 100
_MAX_REPEAT: Final = 1000

_OTHERS: Final = 128
"""The bit of all characters beyond ASCII."""
_ALL: Final = (1 << 129) - 1


def _mask(characters: Iterable[str]) -> int:
    """The mask of these characters; one beyond ASCII matches nothing."""
    mask = 0
    for character in characters:
        if ord(character) < _OTHERS:
            mask |= 1 << ord(character)
    return mask


_DIGITS: Final = _mask(string.digits)
_WORD: Final = _mask(string.ascii_letters + string.digits + "_")
_SPACE: Final = _mask("\t\n\f\r ")
_PERL: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_POSIX: Final = {
    "alnum": _mask(string.ascii_letters + string.digits),
    "alpha": _mask(string.ascii_letters),
    "ascii": _ALL >> 1,
    "blank": _mask("\t "),
    "cntrl": _mask(map(chr, (*range(32), 127))),
    "digit": _DIGITS,
    "graph": _mask(map(chr, range(33, 127))),
    "lower": _mask(string.ascii_lowercase),
    "print": _mask(map(chr, range(32, 127))),
    "punct": _mask(string.punctuation),
    "space": _SPACE | _mask("\v"),
    "upper": _mask(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": _mask(string.hexdigits),
}
_LATIN: Final = _mask(string.ascii_letters)
_SCRIPTS: Final = {
    "Any": _ALL,
    "Latin": _LATIN,
    "Common": _ALL & ~_LATIN,
    "Greek": 0,
    "Cyrillic": 0,
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class _Assertion(Enum):
    """What holds between two characters, and takes none."""

    BEGIN = "begin"
    END = "end"
    BOUNDARY = "word boundary"
    NO_BOUNDARY = "no word boundary"


_ASSERTIONS: Final = {
    "A": _Assertion.BEGIN,
    "z": _Assertion.END,
    "b": _Assertion.BOUNDARY,
    "B": _Assertion.NO_BOUNDARY,
}
_Step = tuple[int | _Assertion | None, tuple[int, ...]]
"""One step of the automaton: the characters it takes or what it asserts (None: nothing), and what may
follow."""
_Build = Callable[[int], int]
"""Adds a part of an expression in front of the step given, and returns its first step."""


@lru_cache(maxsize=32)
def matching(regex: str, names: tuple[str, ...]) -> frozenset[str]:
    """The names that the whole expression matches. Raises InvalidRegularExpressionError."""
    automaton = _Automaton(regex)
    return frozenset(name for name in names if automaton.matches(name))


def check(regex: str) -> None:
    """Raise InvalidRegularExpressionError unless this is an expression in RE2's syntax."""
    _Automaton(regex)


class _Automaton:
    """Follows all ways through an expression at once. A state is the set of steps that may come next, with
    the character before, for assertions; what follows a state is worked out once."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._steps: list[_Step] = [(None, ())]  # The first is the end: the expression has matched.
        first = _Parser(regex, self._add, self._steps.__setitem__).build(0)
        self._first = (frozenset((first,)), "")
        self._after: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._work = 0

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        steps, before = self._first
        for character in name:
            key = (steps, before, character)
            after = self._after.get(key)
            if after is None:
                after = self._after[key] = self._take(*key)
            if not after:
                return False
            steps, before = after, "w" if character in _WORD_CHARACTERS else "-"
        key = (steps, before, "")
        ended = self._after.get(key)
        if ended is None:
            ended = self._after[key] = self._reach(*key)
        return 0 in ended

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= _MAX_PROGRAM:
            raise _refused(self._regex, "it is too large when its repetitions are written out")
        self._steps.append(step)
        return len(self._steps) - 1

    def _take(self, steps: frozenset[int], before: str, character: str) -> frozenset[int]:
        bit = 1 << min(ord(character), _OTHERS)
        taken = set[int]()
        for number in self._reach(steps, before, character):
            what, follow = self._steps[number]
            if isinstance(what, int) and what & bit:
                taken.update(follow)
        return frozenset(taken)

    def _reach(self, steps: frozenset[int], before: str, character: str) -> frozenset[int]:
        """The steps that are reached without taking a character."""
        after = "" if not character else "w" if character in _WORD_CHARACTERS else "-"
        at_boundary = (before == "w") != (after == "w")
        holds = {
            None: True,
            _Assertion.BEGIN: not before,
            _Assertion.END: not after,
            _Assertion.BOUNDARY: at_boundary,
            _Assertion.NO_BOUNDARY: not at_boundary,
        }
        reached, waiting = set(steps), list(steps)
        while waiting:
            what, follow = self._steps[waiting.pop()]
            self._work += 1
            if not isinstance(what, int) and holds[what]:
                new = [number for number in follow if number not in reached]
                reached.update(new)
                waiting += new
        if self._work > _MAX_WORK:
            raise _refused(self._regex, "matching with it takes too many steps")
        return frozenset(reached)


_WORD_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_")


class _Parser:
    """Reads an expression, and builds it from its end."""

    def __init__(
        self, regex: str, add: Callable[[_Step], int], set_: Callable[[int, _Step], None]
    ) -> None:
        self._regex = regex
        self._add = add
        self._set = set_
        self._at = 0
        self._folds = False
        """Whether case is ignored."""
        self._names = set[str]()
        self.build: Final = self._alternatives(0)
        if self._at < len(regex):
            raise self._error("unexpected )")

    def _alternatives(self, depth: int) -> _Build:
        if depth > _MAX_DEPTH:
            raise self._error("it is nested too deeply")
        folds, ways = self._folds, [self._sequence(depth)]
        while self._accept("|"):
            ways.append(self._sequence(depth))
        self._folds = folds
        if len(ways) == 1:
            return ways[0]
        return lambda follow: self._add((None, tuple([way(follow) for way in ways])))

    def _sequence(self, depth: int) -> _Build:
        parts: list[_Build] = []
        while self._at < len(self._regex) and self._regex[self._at] not in "|)":
            parts += self._repeated(depth)

        def build(follow: int) -> int:
            for part in reversed(parts):
                follow = part(follow)
            return follow

        return build

    def _repeated(self, depth: int) -> list[_Build]:
        """One part of a sequence with its repetition; several characters between \\Q and \\E."""
        if self._accept("\\Q"):
            end = self._regex.find("\\E", self._at)
            quoted = self._regex[self._at : end if end >= 0 else len(self._regex)]
            self._at = len(self._regex) if end < 0 else end + 2
            parts = [self._characters(self._folded(_mask(one))) for one in quoted]
        else:
            parts = self._part(depth)
        if (bounds := self._repetition()) is None:
            return parts
        if not parts:
            raise self._error("nothing stands before a repetition")
        if self._repetition() is not None:
            raise self._error("a repetition follows another")
        return [*parts[:-1], self._repeat(parts[-1], *bounds)]

    def _repetition(self) -> tuple[int, int | None] | None:
        """The least and the largest number of times; None without a repetition."""
        bounds: tuple[int, int | None] | None = None
        for sign, meaning in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if bounds is None and self._accept(sign):
                bounds = meaning
        if bounds is None:
            bounds = self._counts()
        if bounds is not None:
            self._accept("?")  # As few as possible: whether the whole name matches is the same.
        return bounds

    def _counts(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; any other brace is a character."""
        end = self._regex.find("}", self._at)
        if not self._regex.startswith("{", self._at) or end < 0:
            return None
        low, comma, high = self._regex[self._at + 1 : end].partition(",")
        numbers = [low, *([high] if high else [])]
        if not all(number.isascii() and number.isdigit() for number in numbers):
            return None
        if any(len(number) > 4 or int(number) > _MAX_REPEAT for number in numbers):
            raise self._error(f"a repetition of more than {_MAX_REPEAT} times")
        most = int(high) if high else None if comma else int(low)
        if most is not None and most < int(low):
            raise self._error("a repetition whose least is above its most")
        self._at = end + 1
        return int(low), most

    def _repeat(self, part: _Build, least: int, most: int | None) -> _Build:
        def build(follow: int) -> int:
            if most is None:
                loop = self._add((None, ()))
                self._set(loop, (None, (part(loop), follow)))
                follow = loop
            else:
                end = follow
                for _ in range(most - least):
                    follow = self._add((None, (part(follow), end)))
            for _ in range(least):
                before, follow = follow, part(follow)
                if follow == before:
                    break  # It takes nothing, and adds nothing however often it is repeated.
            return follow

        return build

    def _part(self, depth: int) -> list[_Build]:
        """A character, a class, an assertion or a group; nothing for flags."""
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return [self._characters(self._folded(self._class()))]
            case ".":
                return [self._characters(_ALL)]
            case "^" | "$":
                return [self._assertion(_Assertion.BEGIN if character == "^" else _Assertion.END)]
            case "\\" if self._at < len(self._regex) and self._regex[self._at] in _ASSERTIONS:
                return [self._assertion(_ASSERTIONS[self._next()])]
            case "\\":
                return [self._characters(self._folded(self._escape()))]
            case "*" | "+" | "?":
                raise self._error(f"nothing stands before {character}")
        return [self._characters(self._folded(_mask(character)))]

    def _group(self, depth: int) -> list[_Build]:
        folds = self._folds
        if self._accept("?"):
            if self._accept("P<") or self._accept("<"):
                self._name()
            elif not self._flags():
                return []  # They are for the rest of the group that this stands in.
        inside = self._alternatives(depth + 1)
        if not self._accept(")"):
            raise self._error("a group is not closed with )")
        self._folds = folds
        return [inside]

    def _flags(self) -> bool:
        """Read flags. Returns whether they are for a group of their own. Lines and greediness make no
        difference to whether a whole name matches."""
        sets = True
        while (flag := self._next()) not in ":)":
            if flag == "i":
                self._folds = sets
            elif flag == "-" and sets:
                sets = False
            elif flag not in "msU":
                raise self._error(f"(?{flag} is not in RE2's syntax")
        return flag == ":"

    def _name(self) -> None:
        end = self._regex.find(">", self._at)
        name = self._regex[self._at : max(end, self._at)]
        if not name or _mask(name) & ~_WORD or not name.isascii() or name in self._names:
            raise self._error(f"the name of a group is {name!r}")
        self._names.add(name)
        self._at = end + 1

    def _class(self) -> int:
        """The rest of a class of characters."""
        negated, mask, is_first = self._accept("^"), 0, True
        while is_first or not self._accept("]"):
            is_first = False
            if self._accept("[:"):
                mask |= self._posix()
                continue
            low = self._next()
            if low == "\\" and self._at < len(self._regex) and self._regex[self._at] in "dDwWsSpP":
                mask |= self._escape()
                continue
            first = self._code(low)
            last = first
            if self._regex.startswith("-", self._at) and not self._regex.startswith("-]", self._at):
                self._at += 1
                last = self._code(self._next())
            if last < first:
                raise self._error("a range of characters ends before it begins")
            mask |= _mask(map(chr, range(first, min(last, 127) + 1)))
        mask = self._folded(mask)
        return _ALL & ~mask if negated else mask

    def _posix(self) -> int:
        end = self._regex.find(":]", self._at)
        name = self._regex[self._at : max(end, self._at)]
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            raise self._error(f"there is no class [:{name}:]")
        self._at = end + 2
        return _ALL & ~known if name.startswith("^") else known

    def _escape(self) -> int:
        """The characters that stand behind a backslash."""
        letter = self._next()
        if letter.lower() in _PERL:
            known = _PERL[letter.lower()]
            return known if letter.islower() else _ALL & ~known
        if letter in "pP":
            mask = self._property()
            return mask if letter == "p" else _ALL & ~mask
        self._at -= 1
        return _mask(chr(self._code("\\")))

    def _property(self) -> int:
        name = self._next()
        if name == "{":
            end = self._regex.find("}", self._at)
            name = self._regex[self._at : max(end, self._at)]
            self._at = end + 1
        plain = name.removeprefix("^")
        mask = _SCRIPTS.get(plain)
        if mask is None:
            ascii_ = [chr(code) for code in range(128)]
            mask = _mask(one for one in ascii_ if unicodedata.category(one).startswith(plain))
            if not plain or plain[:1] not in "CLMNPSZ" or len(plain) > 2:
                raise self._error(f"\\p{{{name}}} is not among the properties that eosdb knows")
        return _ALL & ~mask if name.startswith("^") else mask

    def _code(self, character: str) -> int:
        """The code of a character, which may be written with a backslash."""
        if character != "\\":
            return ord(character)
        letter = self._next()
        if letter in _CONTROLS:
            return ord(_CONTROLS[letter])
        if letter == "x":
            return self._hexadecimal()
        following = self._regex[self._at : self._at + 2]
        if letter in "01234567" and (letter == "0" or following[:1] in tuple("01234567")):
            digits = letter + following[: len(following) - len(following.lstrip("01234567"))]
            self._at += len(digits) - 1
            return int(digits, 8)
        if letter.isascii() and not letter.isalnum():
            return ord(letter)
        raise self._error(f"\\{letter} is not in RE2's syntax")

    def _hexadecimal(self) -> int:
        if self._accept("{"):
            end = self._regex.find("}", self._at)
            digits, after = self._regex[self._at : max(end, self._at)], end + 1
        else:
            digits, after = self._regex[self._at : self._at + 2], self._at + 2
            digits = digits if len(digits) == 2 else ""
        if not digits or len(digits) > 6 or set(digits) - set(string.hexdigits):
            raise self._error("\\x needs hexadecimal digits")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise self._error("\\x is beyond the last character")
        self._at = after
        return code

    def _characters(self, mask: int) -> _Build:
        return lambda follow: self._add((mask, (follow,)))

    def _assertion(self, assertion: _Assertion) -> _Build:
        return lambda follow: self._add((assertion, (follow,)))

    def _folded(self, mask: int) -> int:
        """The mask with both cases of its letters, where case is ignored."""
        if not self._folds:
            return mask
        upper, lower = mask >> 65 & _LETTERS, mask >> 97 & _LETTERS
        return mask | (upper | lower) << 65 | (upper | lower) << 97

    def _next(self) -> str:
        if self._at >= len(self._regex):
            raise self._error("it ends too early")
        self._at += 1
        return self._regex[self._at - 1]

    def _accept(self, text: str) -> bool:
        is_there = self._regex.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _error(self, why: str) -> InvalidRegularExpressionError:
        return _refused(self._regex, f"{why} (before character {self._at + 1})")


_LETTERS: Final = (1 << 26) - 1


def _refused(regex: str, why: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(
        f"{regex!r:.200} is not a regular expression in RE2's syntax that can be used: {why}"
    )
