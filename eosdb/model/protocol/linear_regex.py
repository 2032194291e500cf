"""Regular expressions over names in RE2's syntax, matched in time linear in the names' length.

A remote client chooses the expression, and the server matches it within a write. So nothing here
backtracks: the expression becomes an automaton of limited size and work (decisions/0064). Topic names are
ASCII, so a character class is a mask of 128 bits, plus one bit for all other characters.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Final

from eosdb.errors import InvalidRegularExpressionError

_MAX_PROGRAM: Final = 20_000
"""The most steps of a compiled expression."""
_MAX_WORK: Final = 200_000
"""The most steps to match one expression with all names. Since steps are cached, usual expressions need a
few hundred."""
_MAX_DEPTH: Final = 100
_MAX_REPEAT: Final = 1000

_OTHERS: Final = 128
"""The bit of all characters beyond ASCII."""
_ALL: Final = (1 << 129) - 1


def _mask(characters: Iterable[str]) -> int:
    """Return the mask of these characters. Characters beyond ASCII have no bit."""
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
_LETTERS: Final = (1 << 26) - 1

_SET: Final = r"\\(?:[dDwWsS]|[pP](?:[^{]|\{[^}]*\}))"
"""A backslash escape that matches several characters."""
_ONE: Final = (
    r"(?:[^\\]|\\(?:[afnrtv]|x(?:[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,6}\})"
    r"|0[0-7]{0,2}|[1-7][0-7]{1,2}|[^a-zA-Z0-9\x80-\U0010ffff]))"
)
"""One character, perhaps escaped with a backslash."""
_ITEM: Final = re.compile(
    rf"\[:(?P<posix>\^?\w*):\]|(?P<set>{_SET})|(?P<low>{_ONE})(?:-(?P<high>{_ONE}|{_SET}))?",
    re.DOTALL,
)
"""An item of a character class."""
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|(?P<group>\((?:\?(?:P?<(?P<name>[a-zA-Z0-9_]+)>|(?P<flags>[imsU]*(?:-[imsU]*)?)(?P<end>[:)])))?+)"
    r"|(?P<repetition>(?:[*+?]|\{(?P<least>[0-9]++)(?P<comma>,?)(?P<most>[0-9]*+)\})\??)"
    rf"|(?P<characters>\[(?P<negated>\^?)(?P<items>\]?+(?:\[:\^?\w*:\]|{_SET}|(?!\]){_ONE})*+)\])"
    r"|(?P<assertion>\\[AzbB]|[$^])"
    rf"|(?P<set>{_SET})|(?P<mark>[|)])|(?P<one>(?![\[(]){_ONE})",
    re.DOTALL,
)
"""The tokens of an expression. No token can match in two ways, so parsing takes linear time."""


class _Assertion(Enum):
    """A condition between two characters; it matches no character itself."""

    BEGIN = "begin"
    END = "end"
    BOUNDARY = "word boundary"
    NO_BOUNDARY = "no word boundary"


_ASSERTIONS: Final = {
    "^": _Assertion.BEGIN,
    "$": _Assertion.END,
    r"\A": _Assertion.BEGIN,
    r"\z": _Assertion.END,
    r"\b": _Assertion.BOUNDARY,
    r"\B": _Assertion.NO_BOUNDARY,
}
_Step = tuple[int | _Assertion | None, tuple[int, ...]]
"""One step of the automaton: its characters or condition (None: nothing), and the next steps."""
_Build = Callable[[int], int]
"""Adds the steps of a part before the given step, and returns the first of them."""


@lru_cache(maxsize=32)
def matching(regex: str, names: tuple[str, ...]) -> frozenset[str]:
    """Return the names that match the whole expression. Raises InvalidRegularExpressionError."""
    automaton = _Automaton(regex)
    return frozenset(name for name in names if automaton.matches(name))


def check(regex: str) -> None:
    """Raise InvalidRegularExpressionError for an expression outside of RE2's syntax."""
    _Automaton(regex)


class _Automaton:
    """Follows all paths through an expression at once. A state is the set of possible next steps;
    conditions also need the previous character. Successors of states are cached."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._steps: list[_Step] = [(None, ())]  # Step 0 means a match.
        first = _Parser(regex, self._add, self._steps.__setitem__).build(0)
        self._first = (frozenset((first,)), "")
        self._after: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._work = 0

    def matches(self, name: str) -> bool:
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
        """Return the steps that are reached without consuming a character."""
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
    """Parses an expression; `build` then creates the automaton's steps, from the last to the first."""

    def __init__(
        self, regex: str, add: Callable[[_Step], int], set_: Callable[[int, _Step], None]
    ) -> None:
        self._regex = regex
        self._add = add
        self._set = set_
        self._at = 0
        self._folds = False
        self._names = set[str]()
        self.build: Final = self._alternatives(0)
        if self._at < len(regex):
            raise self._error("unexpected )")

    def _accept(self, *kinds: str) -> re.Match[str] | None:
        """Consume the next token if it is of one of these kinds; without kinds, any but a "mark"."""
        token = _TOKEN.match(self._regex, self._at)
        if token is None:
            if self._at < len(self._regex):
                raise self._error("it is not in RE2's syntax, or ends too early")
            return None
        if (token.lastgroup not in kinds) if kinds else token.lastgroup == "mark":
            return None
        self._at = token.end()
        return token

    def _alternatives(self, depth: int) -> _Build:
        if depth > _MAX_DEPTH:
            raise self._error("it is nested too deeply")
        folds, ways = self._folds, [self._sequence(depth)]
        while self._regex.startswith("|", self._at):
            self._at += 1
            ways.append(self._sequence(depth))
        self._folds = folds
        if len(ways) == 1:
            return ways[0]
        return lambda follow: self._add((None, tuple([way(follow) for way in ways])))

    def _sequence(self, depth: int) -> _Build:
        parts: list[_Build] = []
        while token := self._accept():
            more = self._parts(token, depth)
            if repetition := self._accept("repetition"):
                if not more:
                    raise self._error("nothing stands before a repetition")
                more[-1] = self._repeat(more[-1], *self._bounds(repetition))
                if self._accept("repetition"):
                    raise self._error("a repetition follows another")
            parts += more

        def build(follow: int) -> int:
            for part in reversed(parts):
                follow = part(follow)
            return follow

        return build

    def _parts(self, token: re.Match[str], depth: int) -> list[_Build]:
        r"""Return the builders for one token: one for each character between \Q and \E, none for flags."""
        match token.lastgroup:
            case "quoted":
                return [self._characters(_mask(one)) for one in token["quoted"]]
            case "group":
                return self._group(token, depth)
            case "repetition":
                raise self._error(f"nothing stands before {token[0]}")
            case "assertion":
                assertion = _ASSERTIONS[token[0]]
                return [lambda follow: self._add((assertion, (follow,)))]
            case "characters":
                return [self._characters(self._class(token))]
            case "set":
                return [self._characters(self._several(token[0]))]
        return [self._characters(_ALL if token[0] == "." else self._range(token[0], token[0]))]

    def _bounds(self, token: re.Match[str]) -> tuple[int, int | None]:
        """Return a repetition's minimum and maximum. Laziness has no effect, since whole names are
        matched."""
        if token["least"] is None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token[0][0]]
        if any(
            len(number) > 4 or int(number) > _MAX_REPEAT
            for number in (token["least"], token["most"] or "0")
        ):
            raise self._error(f"a repetition of more than {_MAX_REPEAT} times")
        least = int(token["least"])
        most = int(token["most"]) if token["most"] else None if token["comma"] else least
        if most is not None and most < least:
            raise self._error("a repetition whose minimum is above its maximum")
        return least, most

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
                    break  # `^` and the like match an empty text, so a repetition changes nothing.
            return follow

        return build

    def _group(self, token: re.Match[str], depth: int) -> list[_Build]:
        folds, name = self._folds, token["name"]
        if name in self._names:
            raise self._error(f"two groups have the name {name!r}")
        self._names.update([name] if name else [])
        # The flags m, s and U make no difference if the whole name must match.
        on, _, off = (token["flags"] or "").partition("-")
        self._folds = (folds or "i" in on) and "i" not in off
        if token["end"] == ")":
            return []  # These flags apply to the rest of the enclosing group.
        inside = self._alternatives(depth + 1)
        if not self._regex.startswith(")", self._at):
            raise self._error("a group is not closed with )")
        self._at += 1
        self._folds = folds
        return [inside]

    def _class(self, token: re.Match[str]) -> int:
        mask = 0
        for item in _ITEM.finditer(token["items"]):
            if (name := item["posix"]) is not None:
                known = _POSIX.get(name.removeprefix("^"))
                if known is None:
                    raise self._error(f"there is no class [:{name}:]")
                mask |= _ALL & ~known if name.startswith("^") else known
            elif item["set"]:
                mask |= self._several(item["set"])
            else:
                mask |= self._range(item["low"], item["high"] or item["low"])
        mask = self._folded(mask)
        return _ALL & ~mask if token["negated"] else mask

    def _several(self, escape: str) -> int:
        letter, name = escape[1], escape[2:].strip("{}")
        known = _PERL.get(letter.lower())
        if known is None:
            plain = name.removeprefix("^")
            known = _SCRIPTS.get(plain)
            if known is None:
                if not plain or plain[:1] not in "CLMNPSZ" or len(plain) > 2:
                    raise self._error(f"\\p{{{name}}} is not among the properties that eosdb knows")
                ascii_ = [chr(code) for code in range(128)]
                known = _mask(one for one in ascii_ if unicodedata.category(one).startswith(plain))
        return _ALL & ~known if letter.isupper() != name.startswith("^") else known

    def _range(self, low: str, high: str) -> int:
        first, last = self._code(low), self._code(high)
        if last < first:
            raise self._error("a range of characters ends before it begins")
        return _mask(map(chr, range(first, min(last, _OTHERS - 1) + 1)))

    def _code(self, one: str) -> int:
        """Return the code of a character, which may be escaped with a backslash."""
        letter = one[1:] and one[1]
        if letter == "x":
            code = int(one[2:].strip("{}"), 16)
            if code > 0x10FFFF:
                raise self._error("\\x is beyond the last character")
            return code
        if letter and letter in "dDwWsSpP":
            raise self._error(f"{one} in a range of characters")
        if letter.isdigit():
            return int(one[1:], 8)
        return ord(_CONTROLS.get(letter, letter) or one)

    def _characters(self, mask: int) -> _Build:
        folded = self._folded(mask)
        return lambda follow: self._add((folded, (follow,)))

    def _folded(self, mask: int) -> int:
        """Return the mask; if case is ignored, with both cases of its letters."""
        if not self._folds:
            return mask
        upper, lower = mask >> 65 & _LETTERS, mask >> 97 & _LETTERS
        return mask | (upper | lower) << 65 | (upper | lower) << 97

    def _error(self, why: str) -> InvalidRegularExpressionError:
        return _refused(self._regex, f"{why} (before character {self._at + 1})")


def _refused(regex: str, why: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(
        f"{regex!r:.200} is not a regular expression in RE2's syntax that can be used: {why}"
    )
