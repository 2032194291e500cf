"""Finds a seed whose simulation notices a mutant, a short simulation if there is one, and writes it to
`found_by.json`; `--count` counts the seeds that notice it instead: how strong the simulation is.

python -m tests.simulation.hunt [--seeds N] [--steps N] [--count] [--write] [NAME…]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Settings, run


def hunt(name: str, seeds: int, steps: int) -> tuple[int, int, str] | None:
    """Return a seed that finds the mutant, the step, and the violation. All seeds are tried with few steps
    first: each run of the suite repeats the simulation that is found."""
    _, patch = MUTANTS[name]
    for longest in (steps // 20, steps // 10, steps // 4, steps):
        for seed in range(1, seeds + 1):
            with patch():
                result = run(Settings(seed=seed, steps=longest))
            if result.violation is not None:
                return seed, result.steps, result.violation
    return None


def count(name: str, seeds: int, steps: int) -> str:
    """In how many of the seeds it is noticed, and what the sceptic says most often."""
    _, patch = MUTANTS[name]
    with patch():
        said = [run(Settings(seed=seed, steps=steps)).violation for seed in range(1, seeds + 1)]
    finds = [violation for violation in said if violation is not None]
    return f"{len(finds)} of {seeds} seeds" + (f", first: {finds[0]}" if finds else "")


FOUND_BY = Path(__file__).with_name("found_by.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MUTANTS))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.count:
        for name in options.names:
            print(f"{name}: {count(name, options.seeds, options.steps)}", flush=True)
        return 0
    finds: dict[str, tuple[int, int]] = {}
    for name in options.names:
        found = hunt(name, options.seeds, options.steps)
        if found is not None:
            finds[name] = found[:2]
        print(f"{name}: {found or 'NOT FOUND'}", flush=True)
    if options.write:
        known = json.loads(FOUND_BY.read_text()) | finds
        FOUND_BY.write_text(json.dumps({name: known[name] for name in MUTANTS}, indent=1) + "\n")
    return 0 if len(finds) == len(options.names) else 1


if __name__ == "__main__":
    sys.exit(main())
