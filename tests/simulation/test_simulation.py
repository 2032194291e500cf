"""The simulation: many short worlds without a violation, the same history from the same seed, and proof
that it would find a bug: each mutant is found again."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from eosdb.testing.arena import Faults
from tests.programs import ended
from tests.simulation.__main__ import main
from tests.simulation.hunt import FOUND_BY, hunt
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Settings, command, run, shrink

pytestmark = pytest.mark.simulation

FINDS: dict[str, tuple[int, int]] = json.loads(FOUND_BY.read_text())
SHORT = 500
MANY = 4
"""Seeds of a long run."""


def test_no_promise_is_broken_in_worlds_of_fresh_seeds(seeds: list[int]) -> None:
    """`--seeds N` makes it N times as many, and each run four times as long."""
    for seed in (10 * seed + number for seed in seeds for number in range(10)):
        result = run(Settings(seed, SHORT * 4 if len(seeds) >= MANY else SHORT))
        assert result.violation is None, "\n".join((result.violation, command(result.settings)))


EVENTS = (
    "acknowledged", "committed", "aborted", "processed", "processed by members", "read_committed",
    "processed by assigned members", "an assigned group is stable", "a group changes over",
    "duplicate", "UnknownMemberIdError", "RebalanceInProgressError",
    "OutOfOrderSequenceNumberError", "InvalidProducerEpochError", "ProducerFencedError",
    "ConcurrentTransactionsError", "crash between decision and markers", "node crash",
    "kill somebody", "make a zombie", "let time pass", "rebuild", "truncate",
    "resolved as aborted", "IllegalGenerationError", "InvalidTxnStateError",
    "TransactionCoordinatorFencedError", "an intruder's end_txn", "an intruder's write_txn_markers",
    "an intruder's produce", "an intruder's txn_offset_commit",
    "a member was removed: its process died", "a member was removed: its session ended",
)  # fmt: skip
LIKELY = (88, 54, 47, 5, 16, 1, 3)
"""Seeds of worlds that have most of the events."""


def test_everything_that_can_happen_happens_in_some_world() -> None:
    missing = set(EVENTS)
    for seed in (*LIKELY, *range(1, 101)):
        result = run(Settings(seed, SHORT))
        assert result.violation is None, "\n".join((result.violation, command(result.settings)))
        missing -= {event for event, count in result.counts.items() if count > 0}
        if not missing:
            return
    raise AssertionError(f"no world had {missing}")


def digest(hash_seed: str) -> str:
    code = (
        "from tests.simulation.run import Settings, run; "
        "result = run(Settings(11, 600)); print(result.digest, result.violation)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return ended([sys.executable, "-c", code], env=environment, check=True).stdout


def test_the_checker_shares_only_names_and_the_parser_of_json_with_what_it_checks() -> None:
    checker = Path(__file__).with_name("checker.py").read_text(encoding="utf-8")
    shared = re.findall(r"(?:from|import) (eosdb\S*)", checker)
    assert set(shared) == {"eosdb.model.damage", "eosdb.model.values"}


def test_one_seed_decides_everything() -> None:
    assert digest("0") == digest("4711")


def test_every_mutant_is_known_to_be_found_and_can_be_planted() -> None:
    assert set(FINDS) == set(MUTANTS)
    assert len(MUTANTS) >= 20
    assert all(seed <= 200 for seed, _ in FINDS.values())
    for _, patch in MUTANTS.values():
        with patch():
            pass  # It fits the code.


@pytest.mark.parametrize("part", range(4))
def test_each_deliberate_bug_is_found_and_nothing_without_them(part: int) -> None:
    """By the recorded simulation. A change of the engine can change its course: then by another seed."""
    longest: dict[int, int] = {}
    for name in list(MUTANTS)[part::4]:
        what, patch = MUTANTS[name]
        seed, steps = FINDS[name]
        longest[seed] = max(steps, longest.get(seed, 0))
        with patch():
            violation = run(Settings(seed, steps)).violation
        if violation is None:
            found = hunt(name, seeds=20, steps=2_000)
            assert found is not None, f"{what}: no seed finds it any longer"
            violation = found[2]
        misfits = ("TypeError", "AttributeError")
        assert not violation.startswith(misfits), f"{what} does not fit the code any more"
    for seed, steps in longest.items():
        assert run(Settings(seed, steps)).violation is None, f"seed {seed}"


def test_a_failure_is_told_as_shortly_as_possible() -> None:
    _, patch = MUTANTS["fetch_ignores_the_lso"]
    with patch():
        failed = run(Settings(1, 400))
        shorter = shrink(failed, runs=40)
        again = run(shorter.settings)
    assert len(shorter.history) < len(failed.history)
    assert again.violation == shorter.violation
    assert again.history == shorter.history


def test_the_command_repeats_what_it_names() -> None:
    settings = Settings(3, 40, ("idempotent", "admin"), Faults(reorder=0.5))
    assert command(settings) == (
        "python -m tests.simulation --seed 3 --steps 40 --actors idempotent,admin "
        "--fault reorder=0.5"
    )
    words = command(settings).split()[3:]
    told = CliRunner().invoke(main, [*words, "--history"])
    assert told.exit_code == 0, told.output
    assert "\n".join(run(settings).history) in told.output
    assert "1 seeds x 40 steps: no violation" in told.output


def test_a_violation_is_a_failure_with_its_history() -> None:
    _, patch = MUTANTS["answer_a_duplicate_as_new"]
    with patch():
        told = CliRunner().invoke(main, ["--seeds", "9", "--no-shrink"])
    assert told.exit_code == 1
    assert "VIOLATION" in told.output
    assert "is stored twice" in told.output
    assert "to repeat it: python -m tests.simulation --seed" in told.output


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--actors", "nobody"], "expected some of"),
        (["--actors", ""], "expected some of"),
        (["--fault", "flood=1"], "expected one of"),
        (["--fault", "reorder=often"], "expected reorder=NUMBER"),
        (["--fault", "reorder=2"], "a rate from 0 to 1"),
        (["--steps", "0"], "steps"),
    ],
)
def test_what_cannot_be_simulated_is_a_usage_error(option: list[str], complaint: str) -> None:
    told = CliRunner().invoke(main, option)
    assert told.exit_code == 2
    assert complaint in told.output
