"""The conformance sheet: eosdb passes every check, every check can fail, and the page is the script's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.tidy.tree import ROOT


def load(name: str) -> ModuleType:
    """A module that lies beside the documents, as the script itself finds it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


SCRIPT = load("make_conformance")
DOUBLE, SHEET = load("conformance_sheet.double"), load("conformance_sheet.sheet")
CHECKS, SYSTEMS = SCRIPT.CHECKS, SCRIPT.SYSTEMS
EOSDB = SYSTEMS[0]


class Careless:
    """A double that accepts everything and remembers nothing; its producers and requests are itself."""

    ANSWERS: ClassVar[dict[str, object]] = {
        "read": [],
        "read_on": [],
        "end_offset": 0,
        "offset_at": None,
        "committed_offset": None,
        "identity": DOUBLE.Identity(1, 0),
        "append": 0,
        "end": DOUBLE.Identity(1, 0),
    }

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.ANSWERS.get(name, self)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_eosdb_does_what_kafka_does(check: Any) -> None:
    assert SHEET.run(check, EOSDB.make()) == SHEET.Cell("yes")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_can_fail(check: Any) -> None:
    assert SHEET.run(check, Careless()).outcome == "no"


def test_the_names_and_titles_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert len({check.title for check in CHECKS}) == len(CHECKS)


def test_the_page_lists_the_checks_of_the_script_and_every_one_is_a_yes_of_eosdb() -> None:
    lines = SCRIPT.PAGE.read_text(encoding="utf-8").split("\n## ")[0].splitlines()
    header, _, *rows, total = [line.strip("| ").split(" | ") for line in lines if line[:1] == "|"]
    assert header == ["check", "Kafka's rule", *(system.label for system in SYSTEMS)]
    assert [row[:3] for row in rows] == [
        [f"{number}. {check.title}", check.rule, "yes"]
        for number, check in enumerate(CHECKS, start=1)
    ]
    assert {outcome for row in rows for outcome in row[3:]} <= {"yes", "no", "n/a"}
    assert f"**{len(CHECKS)} yes**" in total


def test_a_page_that_differs_is_shown_and_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SCRIPT, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(SCRIPT, "CHECKS", CHECKS[:2])
    monkeypatch.setattr(SCRIPT, "SYSTEMS", SYSTEMS[:1])
    assert SCRIPT.main(["--check"]) == 1
    assert f"+| 1. {CHECKS[0].title} |" in capsys.readouterr().out
    assert SCRIPT.main([]) == 0
    assert SCRIPT.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = load("conformance_sheet.systems")
    monkeypatch.setattr(systems, "find_spec", lambda name: None if name != "eosdb" else object())
    assert SCRIPT.main([]) == 1
    assert "`pip install confluent-kafka mockafka-py`" in capsys.readouterr().err


def test_a_cell_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a check itself finds, or cannot ask, is told apart; anything else is a no."""

    def outcome(error: Exception) -> object:
        def ask(_: object) -> None:
            raise error

        double = Careless()
        monkeypatch.setitem(Careless.ANSWERS, "error_name", "NAME")
        return SHEET.run(SHEET.Check("name", "title", "rule", ask), double)

    assert outcome(DOUBLE.NotReachable("no way")) == SHEET.Cell("n/a", "no way")
    assert outcome(DOUBLE.Differs("seen")) == SHEET.Cell("no", "seen")
    assert outcome(ValueError("anything")) == SHEET.Cell("no", "unexpected error: NAME")


def test_an_error_of_another_name_is_no_refusal() -> None:
    def refuse() -> None:
        raise KeyError("k")

    double = EOSDB.make()
    try:
        assert DOUBLE.is_refused(double, refuse, frozenset({"KeyError"}))
        with pytest.raises(KeyError):
            DOUBLE.is_refused(double, refuse, DOUBLE.FENCED)
    finally:
        double.close()
