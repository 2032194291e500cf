"""A confluent-kafka program beside an eosdb file, and its port, do the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import run

pytestmark = pytest.mark.process


def test_the_program_and_its_port_turn_the_same_records(tmp_path: Path) -> None:
    assert run("confluent_port.py", "weather.db", folder=tmp_path) == (
        "turned 50 and 50 records; 50 of them are the same\n"
    )
