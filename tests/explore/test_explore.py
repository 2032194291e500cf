"""Every state of small systems on the real broker (docs/proof.md), and the search itself."""

from __future__ import annotations

import tomllib
from ast import literal_eval
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from eosdb.model import requests
from tests.explore import scopes
from tests.explore.__main__ import main
from tests.explore.core import Move, Result, World, explore
from tests.simulation.model import require

SCENARIOS: Final = tomllib.loads(Path(__file__).with_name("scenarios.toml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", scopes.SMALL, ids=lambda name: name.replace(" ", "_"))
def test_no_promise_is_broken_in_any_state(name: str) -> None:
    found = scopes.explored(name, 600)
    assert found.violation is None, f"{found}\n{scopes.story(name, found.path)}"
    assert found.is_complete


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_named_history(name: str) -> None:
    """Each once broke an invariant, or breaks it with a planted bug."""
    moves = literal_eval(SCENARIOS[name]["moves"])
    assert scopes.replayed(SCENARIOS[name]["scope"], moves)[0] is None


class Counting(World):
    """A producer id is given out by each step, which is as good from any of two doors."""

    symmetries: Collection[dict[str, str]] = ({}, {"a": "b", "b": "a"})
    forbidden = 9
    goal = 3

    def prepare(self) -> None:
        """A new file is enough."""

    def start(self) -> tuple[str, ...]:
        return ()

    def moves(self, state: tuple[str, ...]) -> Iterable[Move]:
        return [("~a",), ("~b",)] if len(state) < 3 else []

    def make(self, state: tuple[str, ...], move: Move) -> tuple[str, ...]:
        self.box.ask(requests.InitProducerId())
        return (*state, move[0])

    def tables(self) -> Iterable[object]:
        return self.box.rows("SELECT name, value FROM counters")

    def parts(self, state: tuple[str, ...]) -> Iterable[object]:
        return [state]

    def check(self, state: tuple[str, ...], before: None) -> None:
        require(len(state) < self.forbidden, "so many are forbidden")

    def is_done(self, state: tuple[str, ...]) -> bool:
        return len(state) == self.goal


def counted(most: int = 99, **scope: int) -> Result:
    world = Counting(**scope)
    try:
        return explore(world, most=most)
    finally:
        world.box.close()


def test_states_that_differ_by_the_names_of_equal_clients_are_one() -> None:
    found = counted()
    assert (found.states, found.transitions, found.depth) == (8, 8, 3)
    assert found.is_complete
    assert found.violation is None


def test_a_violation_has_a_shortest_history() -> None:
    found = counted(forbidden=2)
    assert (found.violation, len(found.path)) == ("so many are forbidden", 2)
    assert not found.is_complete


def test_a_state_from_which_nobody_can_finish_is_a_violation() -> None:
    found = counted(goal=1)
    assert (found.violation, len(found.path)) == ("from here nobody can finish", 2)


def test_a_search_that_is_cut_says_so() -> None:
    assert not counted(most=3).is_complete


def test_a_violation_is_told_as_a_program_and_as_a_scenario(monkeypatch: Any) -> None:
    monkeypatch.setitem(scopes.SMALL, "counting", (Counting, {"forbidden": 2}))
    told = scopes.story("counting", [("~a",), ("~b",)])
    program, _, scenario = told.partition("# As a scenario")
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["box"].ask(requests.InitProducerId()).producer_id == 2
    names["world"].box.close()
    assert "('~b',)" in scenario
    assert CliRunner().invoke(main, ["nowhere"]).exit_code == 2
