"""The comparison of docs/why-not.md judges rightly, and runs with what needs no server.

Nothing is said about time.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.why_not import __main__ as command
from benchmarks.why_not import contract, faults, kills, servers, table
from benchmarks.why_not.contract import Verdict, number_of, value_of
from benchmarks.why_not.systems import NAMES, driver


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([0, 1, 2, 3], Verdict(lost=0, duplicated=0, late=0)),
        ([0, 1, 3], Verdict(lost=1, duplicated=0, late=0)),
        ([0, 1, 1, 1, 2, 3], Verdict(lost=0, duplicated=2, late=0)),
        ([0, 2, 3, 1], Verdict(lost=0, duplicated=0, late=1)),
        # A copy that comes behind later ones is not late: the first is what counts.
        ([0, 1, 2, 0, 3], Verdict(lost=0, duplicated=1, late=0)),
        ([], Verdict(lost=4, duplicated=0, late=0)),
    ],
)
def test_what_is_lost_twice_and_late_is_counted(results: list[int], verdict: Verdict) -> None:
    assert contract.judge(4, results) == verdict
    assert verdict.exactly_once == (verdict.lost == verdict.duplicated == 0)


def test_a_result_of_a_message_that_nobody_sent_is_an_error() -> None:
    with pytest.raises(ValueError, match="not sent"):
        contract.judge(4, [0, 1, 2, 3, 4])


def test_lines_of_code_are_counted_without_comments_and_docstrings() -> None:
    source = 'def f():\n    """Why."""\n\n    # because\n    return 1  # one\n'
    assert contract.code_lines(source) == 2


def test_a_tree_of_processes_has_all_descendants_and_no_others() -> None:
    assert servers.tree(2, {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}) == {2, 3, 4}


@pytest.mark.parametrize("statement", [table.NEXT, table.CLAIM])
def test_the_table_finds_its_next_message_by_an_index(statement: str) -> None:
    file = sqlite3.connect(":memory:")
    file.executescript(table.SCHEMA)
    parameters = (0.0,) * statement.count("?")
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert any("ready (status=?)" in step for step in plan), plan
    assert not any("SCAN queue" in step or "TEMP B-TREE" in step for step in plan), plan
    file.close()


@pytest.mark.parametrize("name", ["eosdb", "eosdb-normal", "table", "table-normal", "table-claims"])
def test_a_system_without_a_server_does_the_work_once_and_in_order(
    name: str, tmp_path: Path
) -> None:
    system = driver(name)(str(tmp_path), "run")
    system.create()
    system.produce(map(value_of, range(7)), 1)
    system.produce(map(value_of, range(7, 40)), 10)
    seen: list[int] = []

    def handle(value: str) -> str:
        seen.append(number_of(value))
        return value

    system.work(handle, 1, 5, 60)
    assert seen == list(range(5))
    system.work(handle, 10 if system.in_batches else 1, 35, 60)
    assert [number_of(value) for value in system.results()] == seen == list(range(40))


@pytest.mark.process
@pytest.mark.parametrize("name", ["eosdb", "table"])
def test_a_worker_that_is_killed_neither_loses_nor_doubles(name: str) -> None:
    outcome = kills.kill_often(name, kills=2, sent=60, seed=1, patience_s=0.5)
    assert outcome.kills > 0
    assert outcome.verdict == Verdict(lost=0, duplicated=0, late=0)


@pytest.mark.process
def test_a_claim_with_a_lease_and_nothing_else_is_done_twice_by_a_zombie() -> None:
    found = faults.zombie("table-claims", lease_s=0.5, idle_s=1)
    assert found.done_without_it == faults.SENT
    assert (found.verdict.lost, found.verdict.duplicated) == (0, 1)


@pytest.mark.process
def test_the_command_measures_and_says_what_is_absent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EOSDB_BENCH_KAFKA", raising=False)
    sizes = ["--rounds", "1", "--singly", "10", "--batches", "1"]
    assert command.main(["speed", "table", "kafka", *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| table |") for line in lines) == 2
    assert lines[-1] == "kafka: not measured here, EOSDB_BENCH_KAFKA names no broker"
    with pytest.raises(SystemExit):
        command.main(["rabbit"])
    assert "rabbit" in capsys.readouterr().err


def test_all_systems_are_there_and_named_as_they_are_asked_for() -> None:
    assert all(driver(name).name == name for name in NAMES)
