"""Reduces a failing run to the shortest that can be found, and gives the command that repeats it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator

from eosdb.testing.arena import Faults
from eosdb.testing.simulation.run import Result, Settings, run

_ENOUGH_RUNS = 300
_OTHER_SEEDS = 40


def shrink(failed: Result, runs: int = _ENOUGH_RUNS) -> Result:
    """The failing run with the shortest history among about `runs` smaller ones. It tries fewer actors,
    fewer kinds of faults and other seeds; a run that still breaks a promise in fewer lines is kept and
    reduced further."""
    best, left = failed, runs
    improved = True
    while improved and left > 0:
        improved = False
        for settings in _smaller(best):
            if left == 0:
                break
            left -= 1
            result = run(settings)
            if result.violation is not None and len(result.history) < len(best.history):
                best, improved = result, True
                break
    return dataclasses.replace(best, settings=dataclasses.replace(best.settings, steps=best.steps))


def command(settings: Settings) -> str:
    """The command line that repeats exactly this run."""
    words = ["eosdb", "simulate", "--seed", str(settings.seed), "--steps", str(settings.steps)]
    if settings.roles:
        words += ["--actors", ",".join(settings.roles)]
    if settings.transaction_version != Settings(0).transaction_version:
        words += ["--transaction-version", str(settings.transaction_version)]
    for field in dataclasses.fields(Faults):
        value = getattr(settings.faults, field.name)
        if value != field.default:
            words += ["--fault", f"{field.name}={value}"]
    return shlex.join(words)


def _smaller(result: Result) -> Iterator[Settings]:
    """Settings of smaller runs that may fail, the most promising first."""
    settings = dataclasses.replace(result.settings, steps=result.steps)
    for role in settings.cast:
        if len(settings.cast) > 1:
            fewer = tuple(other for other in settings.cast if other != role)
            yield dataclasses.replace(settings, roles=fewer)
    for field in dataclasses.fields(Faults):
        if getattr(settings.faults, field.name):
            milder = dataclasses.replace(settings.faults, **{field.name: 0})
            yield dataclasses.replace(settings, faults=milder)
    for seed in range(1, _OTHER_SEEDS + 1):
        yield dataclasses.replace(settings, seed=seed)
