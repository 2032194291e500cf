"""The command: see the package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.why_not import faults, kills, speed
from benchmarks.why_not.systems import NAMES, driver


def speeds(names: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    found = speed.measure(names, options.rounds, options.singly, options.batches)
    yield from speed.table(found)
    yield ""
    yield from speed.footprint(found)


def many_kills(names: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    return kills.table(
        kills.kill_often(name, options.kills, options.messages, options.seed) for name in names
    )


def all_faults(names: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    yield "| system | done while it was stopped | lost | twice | late | copies after a lost answer |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name in names:
        found = faults.zombie(name)
        copies = faults.lost_answer(name) if name in faults.PROXIED else "–"
        counts = (found.verdict.lost, found.verdict.duplicated, found.verdict.late, copies)
        cells = " | ".join(map(str, counts))
        yield f"| {name} | {found.done_without_it} of {faults.SENT} | {cells} |"


KINDS = {"speed": speeds, "kills": many_kills, "faults": all_faults}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.why_not")
    parser.add_argument("words", nargs="*", metavar="speed|kills|faults|SYSTEM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--singly", type=int, default=200, help="messages one by one")
    parser.add_argument("--batches", type=int, default=20, help="batches of 100 messages")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=2_000, help="messages of the kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := set(options.words) - set(KINDS) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join([*KINDS, *NAMES])}")
    wanted = [name for name in NAMES if name in options.words] or list(NAMES)
    absent = {name: why for name in wanted if (why := driver(name).absent())}
    present = [name for name in wanted if name not in absent]
    for kind in [kind for kind in KINDS if kind in options.words] or ["speed"]:
        for line in KINDS[kind](present, options):
            print(line, flush=True)
    for name, why in absent.items():
        print(f"{name}: not measured here, {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
