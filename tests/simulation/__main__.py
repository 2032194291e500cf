"""`python -m tests.simulation`: check exactly-once under faults that a seed generates."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import click

from eosdb.testing.arena import Faults
from tests.simulation.run import ALL_ROLES, Result, Settings, command, run, shrink

_COUNTS = (
    "acknowledged",
    "committed",
    "aborted",
    "processed",
    "processed by members",
    "node crash",
    "make a zombie",
)


def _roles(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in ALL_ROLES]
    if unknown or not names:
        raise click.BadParameter(f"got {value!r}, expected some of {', '.join(ALL_ROLES)}")
    return names


def _faults(context: click.Context, parameter: click.Parameter, given: Iterable[str]) -> Faults:
    faults = Faults()
    names = {field.name for field in dataclasses.fields(Faults)}
    for text in given:
        name, _, number = text.partition("=")
        if name not in names:
            raise click.BadParameter(f"got {name!r}, expected one of {', '.join(sorted(names))}")
        try:
            value = float(number)
        except ValueError:
            raise click.BadParameter(f"got {text!r}, expected {name}=NUMBER") from None
        whole = name.endswith("_ms")
        if value < 0 or (not whole and value > 1):
            raise click.BadParameter(
                f"got {text!r}, expected {'milliseconds' if whole else 'a rate from 0 to 1'}"
            )
        changed: dict[str, Any] = {name: int(value) if whole else value}
        faults = dataclasses.replace(faults, **changed)
    return faults


@click.command()
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="First seed.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True,
    help="Number of seeds, starting with --seed.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(1), default=2_000, show_default=True, help="Steps per run."
)
@click.option(
    "--actors", "roles", callback=_roles,
    help=f"Comma-separated roles out of {', '.join(ALL_ROLES)}; by default the seed decides.",
)  # fmt: skip
@click.option(
    "--fault", "faults", multiple=True, callback=_faults, metavar="NAME=NUMBER",
    help="Fault rate from 0 to 1, or delay in ms, such as lose_request=0.2 (repeatable).",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of processes."
)
@click.option("--history", "tell_all", is_flag=True, help="Print the full history.")
@click.option(
    "--shrink/--no-shrink", "smaller", default=True, help="Search for a shorter failing history."
)
def main(
    seed: int,
    seeds: int,
    steps: int,
    roles: tuple[str, ...],
    faults: Faults,
    jobs: int,
    tell_all: bool,
    smaller: bool,
) -> None:
    """Simulate producers, workers, readers and zombies on bad networks, and check every step.

    The run is a function of the seed: the same command prints the same history. If an invariant is
    violated, prints the shortest history that shows it and the command that reproduces it, and exits with
    1.

    \b
    Example:
      python -m tests.simulation --seed 1 --seeds 100 --steps 2000
    """
    first = Settings(seed, steps, roles, faults)
    wanted = [dataclasses.replace(first, seed=seed + i) for i in range(seeds)]
    for result in _results(wanted, jobs):
        counts = ", ".join(f"{result.counts[name]} {name}" for name in _COUNTS)
        verdict = "ok" if result.violation is None else "VIOLATION"
        click.echo(
            f"seed {result.settings.seed}: {verdict} after {result.steps} steps "
            f"({counts}; history {result.digest})"
        )
        if result.violation is not None:
            _print_failure(shrink(result) if smaller else result)
            raise SystemExit(1)
        if tell_all:
            click.echo("\n".join(result.history))
    click.echo(f"{seeds} seeds x {steps} steps: no violation")


def _results(wanted: list[Settings], jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(_run, wanted)
        return
    # Imported late, because other commands must not wait for it.
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_run, wanted, chunksize=4)


def _run(wanted: Settings) -> Result:
    """Run the simulation without logging, because its simulated failures would look like real ones."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return run(wanted)
    finally:
        logging.disable(before)


def _print_failure(result: Result) -> None:
    click.echo("\n".join(result.history))
    click.echo(f"violation: {result.violation}")
    repeat = dataclasses.replace(result.settings, steps=result.steps)
    click.echo(f"to repeat it: {command(repeat)}", err=True)


if __name__ == "__main__":
    main()
