"""Options and fixtures of the whole suite: real files, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb

START_MS = 1_700_000_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=3, help="how many random runs each long simulation makes"
    )


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.fixture
def clock() -> eosdb.ManualClock:
    return eosdb.ManualClock(start_ms=START_MS)


@pytest.fixture
def db(db_path: Path, clock: eosdb.ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="normal") as opened:
        yield opened
