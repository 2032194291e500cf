"""The tables of errors name every one, with the meaning that the code gives it."""

from __future__ import annotations

import re
from functools import cache

from eosdb import errors
from tests.tidy.tree import ROOT
from tests.trials.hunts.meanings import CODES, of_answer, of_code


@cache
def rows(page: str, heading: str) -> list[list[str]]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"(?m)^\| (`.+) \|$", section)
    return [line.split(" | ") for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


@cache
def codes() -> dict[str, list[str]]:
    """What the page of differences says of each code."""
    found = rows("semantics.md", "Errors with Kafka's codes")
    assert sum(len(names(row[0])) for row in found) == len(
        {n for row in found for n in names(row[0])}
    )
    return {name: row[1:3] for row in found for name in names(row[0])}


def test_every_code_that_the_server_answers_is_named_once() -> None:
    assert sorted(codes()) == sorted(CODES.values())


def test_its_meaning_is_that_of_the_code() -> None:
    for code, name in CODES.items():
        answer, reported = codes()[name]
        sending, _, committing = reported.partition("; of a commit ")
        assert answer == of_answer(code), name
        assert sending == of_code(code), name
        assert (committing or sending) == of_code(code, committing=True), name


def test_so_are_the_librarys_own_errors() -> None:
    said = {
        name: row[1]
        for row in rows("errors.md", "The library's own errors")
        for name in names(row[0])
    }
    own = {
        name
        for name in errors.__all__
        if not issubclass(getattr(errors, name), errors.ApiError) and name != "EosdbError"
    }
    assert set(said) == own
    for name, outcome in said.items():
        assert outcome.startswith(getattr(errors, name).outcome), name
