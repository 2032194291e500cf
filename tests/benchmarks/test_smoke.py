"""The benchmark runs and reports everything it promises. Sizes are small and nothing is said about time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import measure, peers, run
from benchmarks.measure import Case, Row, Settings, Target

CHEAP = (
    "send", "two-partitions", "threads", "processes", "batch-sizes", "poll", "size", "scenario", "journal",
    "history", "commit-latency", "connect", "lookups", "kafka-pairs", "kafka-process", "kafka-1000",
    "kafka-10000", "kafka-read-batches", "kafka-read-singly", "trimming",
)  # fmt: skip


@pytest.mark.slow
def test_each_row_and_target_of_the_cheap_cases_is_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    only = [word for name in CHEAP for word in ("--only", name)]
    asked = ["--quick", "--rounds", "1", "--folder", str(tmp_path), "--output", str(output), *only]
    assert run.main(asked) == 0
    text = (output / "RESULTS.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    settings = Settings(
        quick=True, rounds=1, folder=tmp_path, cache=tmp_path, large_file=tmp_path, large_records=2_000
    )  # fmt: skip
    known = {case.name: case for case in run.cases(settings)}
    assert set(CHEAP) < set(known)
    for case in (known[name] for name in CHEAP):
        section = text.partition(f"## {case.title}\n")[2].partition("\n## ")[0]
        for row in case.rows:
            (line,) = (line for line in section.splitlines() if line.startswith(f"| {row.name} |"))
            assert "not measured" not in line
        for target in case.targets:
            assert f"| {case.name} | {target.ours} | {target.theirs or '–'} |" in text
    assert not list(tmp_path.glob("bench-*")), "files of the run are left behind"


@pytest.mark.slow
def test_who_is_not_installed_is_reported_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    asked = ["--quick", "--rounds", "1", "--folder", str(tmp_path), "--only", "two-partitions"]
    assert run.main(asked) == 0
    found = capsys.readouterr().out
    assert f"| {peers.EVENTSOURCING}, 2 events | not installed |" in found
    assert f"| {peers.MOCK} | not installed |" in found


def test_a_case_that_fails_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    def broken(_: Path) -> float:
        raise ValueError("no such disk")

    case = Case(
        name="broken",
        title="Broken",
        unit="ms",
        rows=[Row("a")],
        open=measure.plainly({"a": broken}),
    )
    settings = Settings(
        quick=True, rounds=2, folder=tmp_path, cache=tmp_path, large_file=tmp_path, large_records=1
    )  # fmt: skip
    assert measure.run(case, settings).error == "ValueError: no such disk"


def test_a_ratio_is_taken_within_its_round() -> None:
    target = Target("a", "b", 1.0)
    case = Case(
        name="c",
        title="C",
        unit="",
        rows=[Row("a"), Row("b")],
        targets=[target],
        open=measure.plainly({}),
    )
    rounds: list[Mapping[str, float]] = [
        {"a": 1.0, "b": 2.0},
        {"a": 40.0, "b": 20.0},
        {"a": 3.0, "b": 2.0},
        {"a": 3.0},
    ]
    assert measure.Result(case, rounds).ratios(target) == [0.5, 1.5, 2.0]
    assert target.met(1.0)
    assert not Target("a", "b", 1.0, at_least=False).met(1.1)
