"""`python -m tests.explore [SCOPE …]`: explore these scopes, or all; status 1 after a violation."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click

from tests.explore.scopes import LARGE, SMALL, explored, story


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=900.0, help="The limit of each scope.")
@click.option("--jobs", default=2)
def main(names: tuple[str, ...], seconds: float, jobs: int) -> None:
    wanted = names or (*SMALL, *LARGE)
    if unknown := {*wanted} - {*SMALL, *LARGE}:
        raise click.BadParameter(f"got {sorted(unknown)}, expected some of {[*SMALL, *LARGE]}")
    is_broken = False
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        for name, result in zip(
            wanted, pool.map(partial(explored, seconds=seconds), wanted), strict=True
        ):
            click.echo(f"{name}: {result}")
            if result.violation is not None:
                is_broken = True
                click.echo(story(name, result.path))
    sys.exit(is_broken)


if __name__ == "__main__":
    main()
