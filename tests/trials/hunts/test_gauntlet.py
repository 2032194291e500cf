"""The judge finds what is planted, and a fixed part of the gauntlet is run with every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import each
from tests.tidy.tree import ROOT
from tests.trials.hunts import session
from tests.trials.hunts.actors import ACTORS
from tests.trials.hunts.faults import FAULTS
from tests.trials.hunts.faults.fault import cannot
from tests.trials.hunts.judge import Log, in_part, misjudged
from tests.trials.hunts.ledger import Ledger, Ledgers, Operation, Place

A, B = Place("shop", 0), Place("shop", 1)


def operation(outcome: str, *, is_atomic: bool = True) -> Operation:
    return Operation("p-1", 7, (A, B), is_atomic, outcome)  # type: ignore[arg-type]


def log(*indexes: int, count: int = 2) -> Log:
    """The records of the operation with these indexes, each in its place."""
    entries: Log = {A: [], B: []}
    for index in indexes:
        entries[(A, B)[index]].append(b"p-1/7/%d/%d   " % (index, count))
    return entries


@each(
    ("outcome", "indexes", "is_right"),
    [
        ("written", (0, 1), True),
        ("written", (0,), False),
        ("written", (), False),
        ("written", (0, 1, 1), False),
        ("not written", (), True),
        ("not written", (0,), False),
        ("unknown", (), True),
        ("unknown", (0, 1), True),
        ("unknown", (1,), False),
        ("unknown", (0, 0, 1, 1), False),
    ],
)
def test_what_is_there_is_held_against_what_was_told(
    outcome: str, indexes: tuple[int, ...], is_right: bool
) -> None:
    assert (not misjudged([operation(outcome)], log(*indexes))) == is_right


def test_an_operation_that_is_not_atomic_may_be_there_in_part_when_it_is_unknown() -> None:
    assert not misjudged([operation("unknown", is_atomic=False)], log(1, count=0))
    assert misjudged([operation("unknown", is_atomic=False)], log(1, 1, count=0))
    assert not in_part(log(1, count=0))


def test_each_record_of_what_is_not_atomic_is_held_against_its_own_outcome() -> None:
    mixed = Operation("p-1", 7, (A, B), False, ["written", "not written"])
    assert mixed.outcome == "unknown"
    assert not misjudged([mixed], log(0, count=0))
    assert "was acknowledged, and is not there" in misjudged([mixed], log())[0]
    assert '"not written", and is there' in misjudged([mixed], log(0, 1, count=0))[0]


def test_other_places_other_orders_and_strangers_are_noticed() -> None:
    swapped = {A: log(1)[B], B: log(0)[A]}
    assert "other places" in misjudged([operation("written")], swapped)[0]
    (problem,) = misjudged([], log(0))
    assert problem == "nobody has sent 'p-1/7/0/2'"
    backwards = {A: [b"p-1/8/0/1", b"p-1/7/0/1"]}
    both = [Operation("p-1", n, (A,), True, "written") for n in (7, 8)]
    assert "stands behind" in misjudged(both, backwards)[0]


def test_a_part_of_a_transaction_is_noticed() -> None:
    assert in_part(log(0)) == ["a reader sees 1 of the 2 records of p-1/7"]
    assert not in_part(log(0, 1))


def test_a_ledger_outlives_its_program_and_a_line_half_written_is_not_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "p")
    first, second = (ledger.attempt([A], is_atomic=True) for _ in range(2))
    ledger.close(first, "written")
    with (tmp_path / "ledger.p").open("ab") as file:
        file.write(b'["not written", ')
    ledgers = Ledgers(tmp_path)
    assert (ledgers.count("written"), ledgers.count("not written")) == (1, 0)
    assert ledgers.operations[second.life, second.number].outcome == "unknown"


def test_a_cell_that_cannot_occur_says_why_in_a_sentence() -> None:
    reasons = {
        reason
        for actor in ACTORS.values()
        for fault in FAULTS.values()
        if (reason := cannot(actor, fault)) is not None
    }
    assert all(len(reason.split()) > 3 for reason in reasons)
    assert not [
        (actor.name, name)
        for actor in ACTORS.values()
        for name in actor.cannot
        if name not in FAULTS
    ]


def test_the_proof_names_as_many_actors_and_faults_as_there_are() -> None:
    proof = (ROOT / "docs/proof.md").read_text(encoding="utf-8")
    assert f"The gauntlet now has {len(ACTORS)} actors and {len(FAULTS)} faults." in proof


FIXED = [
    ("producer", "kill-client,fork,lock-short,sync-fails"),
    ("confluent", "kill-both,lock-short,lost-answer,twice"),
    ("block", "kill-client,disk-full"),
    ("relay-file", "kill-client,write-fails"),
    ("process-pair", "kill-client,stop-client,housekeeping"),
    ("process-batches", "kill-client,lock-short"),
    ("process-many", "kill-client,stop-client,fork"),
    ("later", "kill-client,zombie,housekeeping"),
]


@pytest.mark.crash
@pytest.mark.parametrize(("actor", "faults"), FIXED)
def test_a_fixed_part_of_the_gauntlet(tmp_path: Path, actor: str, faults: str) -> None:
    report = session.run(ACTORS[actor], [FAULTS[name] for name in faults.split(",")], 1, tmp_path)
    assert report.problems == []
    assert set(report.struck) == set(faults.split(","))
