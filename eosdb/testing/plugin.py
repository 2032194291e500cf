"""The pytest plugin: a fresh database on a clock that the test advances, and bad networks to it.

Installed with eosdb; nothing needs to be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eosdb import Database, ManualClock
    from eosdb.testing import FaultyTransport

START_MS = 1_700_000_000_000


@pytest.fixture
def eosdb_clock() -> ManualClock:
    """A clock that stands still at 2023-11-14 22:13:20 UTC until the test calls `advance(ms)`."""
    from eosdb import ManualClock

    return ManualClock(START_MS)


@pytest.fixture
def eosdb_db(tmp_path: Path, eosdb_clock: ManualClock) -> Iterator[Database]:
    """An empty database in a temporary file, on `eosdb_clock`."""
    import eosdb

    with eosdb.connect(tmp_path / "eosdb.db", clock=eosdb_clock, durability="off") as db:
        yield db


@pytest.fixture
def eosdb_faults(eosdb_db: Database) -> Callable[..., FaultyTransport]:
    """Makes bad networks to `eosdb_db`: `db.producer(transport=eosdb_faults(seed=1, lose_request=0.2))`."""
    from eosdb.testing import FaultyTransport

    def make(seed: int = 0, **faults: Any) -> FaultyTransport:
        return FaultyTransport(eosdb_db.broker, seed, **faults)

    return make
