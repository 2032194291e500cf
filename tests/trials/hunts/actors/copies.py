"""Copies of the file, made or read again and again: each that a reader gets is a whole state of the file,
with no part of a transaction, and the last is the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.trials.hunts.actors.actor import Actor, Copier, Need
from tests.trials.hunts.judge import in_part
from tests.trials.hunts.ledger import Place
from tests.trials.hunts.programs.copying import COPIES, MAKERS, NOTES, Rows, digest, read, rows
from tests.trials.hunts.programs.working import FEEDER, TOPIC
from tests.trials.hunts.world import World

_CHUNK: Final = re.compile(r".+\.[0-9a-f]{32}\.unfinished")
_VALUE: Final = 3
"""The column of a row."""


class Copies(Copier):
    """The client makes them, and a program under no fault reads them; or the other way round."""

    has = frozenset({Need.FORK, Need.OWN_FILE, Need.LONG_LIFE})

    def __init__(
        self,
        name: str,
        summary: str,
        maker: str,
        reader: str,
        cannot: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name, self.summary = name, summary
        self.cannot = {
            **cannot,
            "remove-oldest": "its copies are compared from the first record on",
        }
        self._maker, self._reader = maker, reader

    def begin(self, world: World) -> None:
        client, other = self._maker, self._reader
        if self.name == self._reader:
            client, other = other, client
        (world.folder / COPIES).mkdir()
        world.add("feeder", world.program("writers", FEEDER))
        world.add("client", world.program("copying", client))
        world.add("other", world.program("copying", other))

    def progress(self, world: World) -> int:
        """How many copies were read that are unlike each other: both programs work."""
        notes = world.folder / NOTES
        return len(set(notes.read_bytes().splitlines())) if notes.exists() else 0

    def settle(self, world: World) -> None:
        world.roles["other"].stop()
        MAKERS[self._maker](world.folder)
        read(world.folder, self._reader)

    def problems(self, world: World) -> list[str]:
        source = rows(world.path)
        notes = [json.loads(line) for line in (world.folder / NOTES).read_text().splitlines()]
        problems = []
        for number, (of_verify, records) in enumerate(notes):
            counts = {int(partition): count for partition, (count, _) in records.items()}
            cut = {partition: source[partition][:count] for partition, count in counts.items()}
            problems += [f"copy {number}: {problem}" for problem in of_verify + in_part(_log(cut))]
            if any(digest(cut[int(name)]) != value for name, (_, value) in records.items()):
                problems.append(f"copy {number} has other records than the file: {counts}")
        last = {int(partition): count for partition, (count, _) in notes[-1][1].items()}
        if last != {partition: len(of) for partition, of in source.items()}:
            problems.append(f"the last copy is not all of the file: {last}")
        is_killed = world.roles["client" if self.name == self._maker else "other"].lives > 1
        return problems + _strays(world.folder, may_have_chunks=is_killed)


def _log(of: Rows) -> dict[Place, list[bytes]]:
    return {
        Place(TOPIC, partition): [
            value for row in records if isinstance(value := row[_VALUE], bytes)
        ]
        for partition, records in of.items()
    }


def _strays(folder: Path, *, may_have_chunks: bool) -> list[str]:
    """The last copy has cleared away what the killed ones left; the chunks that a killed publisher was
    writing go a day later (docs/backups.md)."""
    return [
        f"a file is left: {path.relative_to(folder)}"
        for pattern in ("**/*unfinished*", "**/*.publishing")
        for path in folder.glob(pattern)
        if not (may_have_chunks and _CHUNK.fullmatch(path.name))
    ]


_IN_THREADS: Final = {
    "fork": "Python itself waits for ever when a signal handler forks within ThreadPoolExecutor.submit, "
    "which it uses; tests/chaos forks beside threads"
}
ACTORS: Final[list[Actor]] = [
    Copies(
        "publish", "`publish` to object storage, over and over", "publish", "fetch", _IN_THREADS
    ),
    Copies("fetch", "`fetch` of what is published, over and over", "publish", "fetch", _IN_THREADS),
    Copies("publish-file", "`publish` to a path, over and over", "publish-file", "open-file"),
    Copies("backup", "`backup`, over and over", "backup", "restore"),
]
