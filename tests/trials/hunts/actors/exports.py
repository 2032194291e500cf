"""Exports into tables of a lakehouse: every committed record in the table once, at its offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import eosdb
from tests.integrations.lakehouse.tables import Table, committed
from tests.integrations.relay.contents import Content
from tests.trials.hunts.actors.actor import Actor, Copier, Need
from tests.trials.hunts.actors.relays import different, source_of
from tests.trials.hunts.programs.working import FEEDER, TOPIC
from tests.trials.hunts.world import World


class Export(Copier):
    """`eosdb export --follow`. Its progress is the number of versions that the table has."""

    has = frozenset({Need.OWN_FILE, Need.LONG_LIFE})
    ends_on_error = True
    weight = 2

    def __init__(self, format: str, versions: str) -> None:
        self.name = format
        self.summary = f"`eosdb export --follow` into a table of {format.capitalize()}"
        self._format, self._versions = format, versions

    def begin(self, world: World) -> None:
        world.add("feeder", world.program("writers", FEEDER))
        world.add("client", world.command(*self._command(world), "--follow", "--every", 1))

    def _table(self, world: World) -> Table:
        folder = world.folder / "lake"
        folder.mkdir(exist_ok=True)
        return Table(self._format, folder)

    def _command(self, world: World) -> list[object]:
        table = self._table(world)
        options = [f"--option={name}={value}" for name, value in table.options.items()]
        words = [
            "export",
            world.path,
            table.target,
            "--table-format",
            self._format,
            "--allow-data-loss",
        ]
        return [*words, *options]

    def progress(self, world: World) -> int:
        return sum(1 for _ in (world.folder / "lake").rglob(self._versions))

    def settle(self, world: World) -> None:
        world.finish(*self._command(world))

    def problems(self, world: World) -> list[str]:
        table = self._table(world)
        rows = table.rows()
        found = [(row["topic"], row["partition"], row["offset"]) for row in rows]
        with eosdb.connect(world.path) as db:
            removed = {(TOPIC, *place) for place in world.removed}
            places = sorted({*committed(db)} | (removed & {*found}))
        target = [_content(row) for row in rows]
        problems = different(source_of(world, target), target)
        if places != found:
            problems.append("records of the table have other offsets than in the file")
        return problems


def _content(row: Mapping[str, Any]) -> Content:
    at = round(row["timestamp"].timestamp() * 1000)
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    return Content(row["partition"], at, row["key"], row["value"], headers)


ACTORS: Final[list[Actor]] = [
    Export("delta", "_delta_log/*.json"),
    Export("iceberg", "metadata/*.metadata.json"),
]
