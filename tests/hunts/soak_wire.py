"""A soak of the server: three foreign clients copy a topic on one file, exactly once, in bounded memory.

    python -m tests.hunts.soak_wire [--minutes 20] [--kills 3] [--folder PATH]

It is a long session of the gauntlet with its copiers side by side, while the server is killed (SIGKILL)
a few times. At the end: is every record in every copy once, in order, is the server's memory flat, does
the file verify? The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final

from benchmarks.kafka import Process
from tests.hunts import judge
from tests.hunts.actors.clients import COPIERS, Group
from tests.hunts.programs.working import FEEDER
from tests.hunts.world import World

_LOOKS: Final = 30
_FLAT: Final = 1.1
_SLACK_MB: Final = 5.0


def soak(folder: Path, seconds: float, kills: int) -> list[str]:
    """What went wrong."""
    with World(folder, 0) as world:
        world.serve()
        world.add("feeder", world.program("writers", FEEDER))
        for copier in COPIERS:
            copier.start(world, copier.name)
        memory = _watch(world, seconds, kills)
        world.roles["feeder"].stop()
        for copier in COPIERS:
            world.until(partial(_is_done, copier, world), f"{copier.name} comes to the end")
            world.roles[copier.name].stop()
        world.roles["server"].stop()
        world.ledgers.refresh()
        problems = judge.misjudged(world.ledgers.operations.values(), judge.committed(world.path))
        problems += [it for copier in COPIERS for it in copier.problems(world)]
        problems += judge.problems_of_file(world.path)
        print(f"{world.ledgers.count()} transactions in each of {len(COPIERS)} copies")
    middle, last = memory[len(memory) // 3 : 2 * len(memory) // 3], memory[2 * len(memory) // 3 :]
    if max(last) > max(middle) * _FLAT and max(last) > max(middle) + _SLACK_MB:
        problems.append(f"the server's memory grew from {max(middle):.0f} to {max(last):.0f} MB")
    return problems


def _is_done(copier: Group, world: World) -> bool:
    return not copier.behind(world)


def _watch(world: World, seconds: float, kills: int) -> list[float]:
    """The server's memory, in MB, again and again."""
    began, next_kill, memory = monotonic(), 1, list[float]()
    for look in range(1, _LOOKS + 1):
        sleep(max(0.0, began + seconds * look / _LOOKS - monotonic()))
        if next_kill <= kills and look >= next_kill * _LOOKS / (kills + 1):
            next_kill += 1
            world.roles["server"].kill()
            world.revive()
            sleep(1)
        memory.append(Process(world.roles["server"].pid).rss_mb())
        print(
            f"{monotonic() - began:7.0f} s  server {memory[-1]:6.1f} MB  "
            f"file {world.path.stat().st_size / 1e6:7.1f} MB",
            flush=True,
        )
    return memory


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunts.soak_wire", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--kills", type=int, default=3, help="of the server")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the file is made")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(dir=asked.folder, prefix="soak-") as folder:
        problems = soak(Path(folder), asked.minutes * 60, asked.kills)
    print("\n".join(problems) if problems else "every record once in every copy, and all is flat")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
