"""A copy appears under its name only once it is on the disk, and its name is then made durable, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.store.schema.new_file import sync_folder
from eosdb.system.road import road
from tests.maintenance import everything


def backup(db: eosdb.Database, to: Path) -> None:
    db.backup(to)


def publish(db: eosdb.Database, to: Path) -> None:
    db.publish_copy(to)


def restore(db: eosdb.Database, to: Path) -> None:
    db.restore_to(to, 5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [backup, publish, restore])
def test_a_copy_is_synced_before_it_appears(
    db_path: Path,
    clock: eosdb.ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[eosdb.Database, Path], None],
) -> None:
    everything.fill(db_path, clock)
    target = db_path.with_name("copy.db")
    done: list[tuple[str, bool]] = []
    sync = road.sync

    def synced(descriptor: int) -> None:
        done.append((os.readlink(f"/proc/self/fd/{descriptor}"), target.exists()))
        sync(descriptor)

    def folder_synced(*given: Any) -> None:
        done.append(("the folder", target.exists()))
        sync_folder(*given)

    with eosdb.connect(db_path, clock=clock) as db:
        monkeypatch.setattr(road, "sync", synced)
        monkeypatch.setattr("eosdb.maintenance.copies.sync_folder", folder_synced)
        make(db, target)
    unfinished = [exists for name, exists in done if name.startswith(f"{target}.unfinished-")]
    assert unfinished == [False]
    assert ("the folder", True) in done
    assert done.index(("the folder", True)) > [exists for _, exists in done].index(False)
