"""The conformance sheet: eosdb passes every check, every check can fail, and the page is the script's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from scripts import make_conformance
from tests.cases import each
from tests.conformance import double as doubles
from tests.conformance import restart_checks, sheet, systems
from tests.conformance.catalog import CHECKS
from tests.conformance.check import Check
from tests.conformance.fixture_double import EosdbKafka
from tests.conformance.systems import SYSTEMS

EOSDB, SERVED, *_ = SYSTEMS


class Careless:
    """A double that accepts everything and remembers nothing; its producers and requests are itself."""

    ANSWERS: ClassVar[dict[str, object]] = {
        "read": [],
        "read_on": [],
        "end_offset": 0,
        "offset_at": None,
        "committed_offset": None,
        "identity": doubles.Identity(1, 0),
        "append": 0,
        "end": doubles.Identity(1, 0),
    }

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.ANSWERS.get(name, self)


@pytest.mark.slow
@pytest.mark.parametrize("make", [EOSDB.make, EosdbKafka], ids=["library", "wire"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_eosdb_does_what_kafka_does(check: Any, make: Any) -> None:
    assert sheet.run(check, make()) == sheet.Cell("yes")


@pytest.mark.process
@pytest.mark.parametrize("check", restart_checks.SUBJECT.checks, ids=lambda check: check.name)
def test_a_server_that_is_killed_forgets_nothing(check: Any) -> None:
    assert sheet.run(check, SERVED.make()) == sheet.Cell("yes")


@each("check", CHECKS)
def test_a_check_can_fail(check: Any) -> None:
    assert sheet.run(check, Careless()).outcome == "no"


def test_the_names_and_titles_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert len({check.title for check in CHECKS}) == len(CHECKS)


def test_the_page_lists_the_checks_of_the_script_and_every_one_is_a_yes_of_eosdb() -> None:
    page = make_conformance.PAGE.read_text(encoding="utf-8")
    lines = page[page.index("| check |") :].split("\n\n")[0].splitlines()
    header, _, *rows, _ = [line.strip("| ").split(" | ") for line in lines]
    ours, others = SYSTEMS[:2], SYSTEMS[2:]
    assert (
        f"{ours[0].label} and {ours[1].label} say yes to all ({len(CHECKS)} of {len(CHECKS)})"
        in page
    )
    assert header == ["check", "Kafka's rule", *(system.label for system in others)]
    assert [row[:2] for row in rows] == [
        [f"{number}. {check.title}", check.rule] for number, check in enumerate(CHECKS, start=1)
    ]
    assert {outcome for row in rows for outcome in row[2:]} <= {"yes", "no", "n/a"}


def test_a_page_that_differs_is_shown_and_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_conformance, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(make_conformance, "CHECKS", CHECKS[:2])
    monkeypatch.setattr(make_conformance, "SYSTEMS", SYSTEMS[:1])
    assert make_conformance.main(["--check"]) == 1
    assert f"+| 1. {CHECKS[0].title} |" in capsys.readouterr().out
    assert make_conformance.main([]) == 0
    assert make_conformance.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "find_spec", lambda name: None if name != "eosdb" else object())
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert make_conformance.main([]) == 1
    told = capsys.readouterr().err
    assert "run `pip install aiokafka confluent-kafka kafka-python mockafka-py` first" in told
    assert "install go first" in told


def test_a_cell_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a check itself finds, or cannot ask, is told apart; anything else is a no."""

    def outcome(error: Exception) -> object:
        def ask(_: object) -> None:
            raise error

        double = Careless()
        monkeypatch.setitem(Careless.ANSWERS, "error_name", "NAME")
        return sheet.run(Check("name", "title", "rule", ask), double)

    assert outcome(doubles.NotReachable("no way")) == sheet.Cell("n/a", "no way")
    assert outcome(doubles.Differs("seen")) == sheet.Cell("no", "seen")
    assert outcome(ValueError("anything")) == sheet.Cell("no", "unexpected error: NAME")


def test_an_error_of_another_name_is_no_refusal() -> None:
    def refuse() -> None:
        raise KeyError("k")

    double = EOSDB.make()
    try:
        assert doubles.is_refused(double, refuse, frozenset({"KeyError"}))
        with pytest.raises(KeyError):
            doubles.is_refused(double, refuse, doubles.FENCED)
    finally:
        double.close()
