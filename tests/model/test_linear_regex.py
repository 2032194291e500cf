"""Regular expressions of clients: RE2's syntax as Kafka 4.1 takes it, whole names, and no expression that
burns the server."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.errors import InvalidRegularExpressionError
from eosdb.model.protocol import linear_regex
from tests.cases import each

NAMES = ("orders", "orders-2024", "Orders", "a.b", "ab", "b", "", "x_1", "größe")


def matched(regex: str, names: tuple[str, ...] = NAMES) -> set[str]:
    return set(linear_regex.matching(regex, names))


@each(
    ("regex", "names"),
    [
        ("orders", {"orders"}),
        ("^orders.*$", {"orders", "orders-2024"}),
        ("orders-[0-9]{4}", {"orders-2024"}),
        (r"orders-\d+", {"orders-2024"}),
        (r"orders-\d{2,3}", set()),
        ("(?i)ORDERS", {"orders", "Orders"}),
        ("(?i:o)rders", {"orders", "Orders"}),
        ("(?i:O)RDERS", set()),
        (r"a\.b", {"a.b"}),
        ("a.b", {"a.b"}),
        (r"\Qa.b\E", {"a.b"}),
        ("a?b", {"ab", "b"}),
        ("(a|)b", {"ab", "b"}),
        ("(?P<one>a)(?<two>b)", {"ab"}),
        ("", {""}),
        ("[^o].*", {"Orders", "a.b", "ab", "b", "x_1", "größe"}),
        ("[[:alpha:]]+", {"orders", "Orders", "ab", "b"}),
        (r"\pL+", {"orders", "Orders", "ab", "b"}),
        (r"[\w.]+\b", {"orders", "Orders", "a.b", "ab", "b", "x_1"}),
        (r"\x61b", {"ab"}),
        (r"\x{61}b", {"ab"}),
        (r"\141b", {"ab"}),
        ("a{0}b", {"b"}),
        ("a{,2}", set()),
        ("[]a]b", {"ab"}),
        ("[a-]b", {"ab"}),
        (r"\Aab\z", {"ab"}),
        (r"a\Bb", {"ab"}),
        ("gr..e", {"größe"}),
        ("a*?b", {"ab", "b"}),
        ("(a*)*b", {"ab", "b"}),
        ("(){1000}ab", {"ab"}),
    ],
)
def test_an_expression_matches_whole_names(regex: str, names: set[str]) -> None:
    assert matched(regex) == names


@each("regex", [
        "(", ")", "a)", "[a", "*a", "a**", "x*??", "x{2}{3}", "a{1001}", "a{2,1}", r"\1", "(?=x)",
        "(?!x)", "(?<n", "(?P<n>a)(?P<n>b)", "[[:foo:]]", r"\p{Foo}", r"\C", "[b-a]", "\\", "(?z)",
        r"\x{110000}", r"\xg0", "(?P<>a)", r"\q", "(" * 200 + ")" * 200, "(a{1000}){1000}",
        "{2}", "a|{2,}", r"[a-\d]",
    ])  # fmt: skip
def test_what_is_not_in_the_syntax_or_too_large_is_refused(regex: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="is not a regular expression"):
        linear_regex.check(regex)


@pytest.mark.parametrize(
    "regex", [r"^core.*", r"\_", "{", r"\z", "((a{100}){100})", "a|b|", "[[:]", "x{,2}"]
)
def test_what_kafka_takes_is_taken(regex: str) -> None:
    linear_regex.check(regex)


def test_an_expression_over_which_others_hang_is_matched_at_once() -> None:
    names = tuple("a" * 200 + str(number) for number in range(1_000))
    assert matched("(a*)*(a|aa)+$", names) == set()
    assert matched("(a|aa)+[0-9]+", names) == set(names)


@pytest.mark.parametrize(
    "part", ["{1", "[[:a", "(?i", "(?<a", r"\p{", r"\Q", "(", "[a", r"\x{", "a|"]
)
def test_reading_tries_no_part_in_two_ways(part: str) -> None:
    for hostile in (part * (32_000 // len(part)), part + part[-1] * 32_000):
        with contextlib.suppress(InvalidRegularExpressionError):
            linear_regex.check(hostile)


def test_an_expression_whose_ways_explode_is_given_up() -> None:
    names = tuple(f"{number:0200b}".replace("0", "a").replace("1", "b") for number in range(2_000))
    with pytest.raises(InvalidRegularExpressionError, match="too many steps"):
        matched("(a|b)*a(a|b){500}(a|b)*b(a|b){500}", ("ab" * 600, *names))


ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "(?:ab)", "(a|b)", r"\w", "^", "$", r"\b"])
REGEX = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{1,}"])), max_size=6)
TEXTS = st.lists(st.text("ab-", max_size=6), min_size=1, max_size=5).map(tuple)


@pytest.mark.slow
@given(REGEX, TEXTS)
def test_it_matches_what_pythons_own_expressions_match(
    parts: list[tuple[str, str]], names: tuple[str, ...]
) -> None:
    regex = "".join(atom + ("" if atom in "^$\\b" else times) for atom, times in parts)
    assert matched(regex, names) == {name for name in names if re.fullmatch(regex, name)}
