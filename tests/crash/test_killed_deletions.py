"""`delete_records` works in many units, and dies in any of them: what was to stay stays, also in a topic
that was made anew in between, and what is left over goes with the next housekeeping."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import eosdb
from eosdb.errors import UnknownTopicIdError
from eosdb.model.failpoints import Failpoint, watched
from tests.broker.made_anew import NEW, OLD, TPS, Between, make, make_anew
from tests.crash.worker import Instructions, die
from tests.readers import committed_values

pytestmark = [pytest.mark.crash, pytest.mark.process]

MOST = 30
KEPT = [*OLD[35:]]


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"_ROWS_PER_REQUEST": 5, "ROWS_PER_UNIT": 4}.items():
        monkeypatch.setattr(f"eosdb.log.retention.{name}", size)


def delete_and_die(path: Path, units: int, instructions: int | None, anew_at: int | None) -> int:
    """In a child that dies behind this many units, or SQLite instructions; another program makes the topic
    anew before the unit `anew_at`. Returns how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        with eosdb.connect(path, durability="off") as db, eosdb.connect(path) as other:
            left = [units]

            def look(point: Failpoint) -> None:
                left[0] -= point is Failpoint.UNIT_COMMITTED
                if left[0] < 0:
                    die()

            def act() -> None:
                if anew_at is not None:
                    with watched(lambda _: None, lambda: False):  # It lives.
                        make_anew(other)

            Instructions(db, instructions)
            with (
                Between(db, act, MOST if anew_at is None else anew_at),
                watched(look, lambda: False),
            ):
                db.broker.delete_records(TPS[0], 35)
        status = 0
    except UnknownTopicIdError:
        status = 0
    finally:
        os._exit(status)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "t.db"
    with eosdb.connect(path, durability="off") as db:
        make(db, OLD)
    return path


def check(path: Path, *, is_anew: bool) -> None:
    with eosdb.connect(path, durability="off") as db:
        first, second = (committed_values(db, tp) for tp in TPS)
        if is_anew and second == NEW:
            assert first == NEW
        else:
            assert second == OLD
            assert first[-len(KEPT) :] == KEPT
            assert db.broker.delete_records(TPS[0], 35) == 35
            assert committed_values(db, TPS[0]) == KEPT
        db.housekeeping()
        stored = db.query("SELECT count(*) FROM records WHERE control IS NULL").rows
        expected = 2 * len(NEW) if second == NEW else len(KEPT) + len(OLD)
        assert [tuple(row) for row in stored] == [(expected,)]
        assert db.verify().ok


@pytest.mark.parametrize("anew_at", [None, 2, 5])
def test_killed_behind_any_unit_it_has_deleted_nothing_that_stays(
    prepared: Path, tmp_path: Path, anew_at: int | None
) -> None:
    kills = 0
    for units in range(MOST):
        path = tmp_path / f"{units}.db"
        shutil.copyfile(prepared, path)
        status = delete_and_die(path, units, None, anew_at)
        check(path, is_anew=anew_at is not None)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
    assert kills > (10 if anew_at is None else 1)


def test_killed_in_the_middle_of_a_unit_and_made_anew_afterwards_the_new_topic_is_whole(
    prepared: Path, tmp_path: Path
) -> None:
    kills = 0
    for instructions in range(0, 8_000, 400):
        path = tmp_path / f"{instructions}.db"
        shutil.copyfile(prepared, path)
        kills += delete_and_die(path, MOST, instructions, None) == -signal.SIGKILL
        with eosdb.connect(path, durability="off") as db:
            make_anew(db)
        check(path, is_anew=True)
    assert kills > 5
