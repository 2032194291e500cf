"""Random tests take fresh seeds in each run: one for each scenario, or `--seeds N` of them.

The first is in the report's header, and in the output of a test that fails; `--seed` repeats it. A seed
that found a bug becomes a permanent case: a line of `tests/seeds.toml`, after which its test always runs
with that seed, too.
"""

from __future__ import annotations

import secrets
import tomllib
from pathlib import Path
from typing import Final

import pytest

KNOWN: Final[dict[str, list[int]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Permanent seeds by the name of the test, as in `test_x` or `test_x[parameter]`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=1,
        help="how many random runs each random test makes; 2 or more: also 1,000 examples",
    )
    parser.addoption(
        "--seed", type=int, default=None, help="the first seed; a fresh one by default"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:  # The workers of xdist get the option with its value.
        config.option.seed = secrets.randbelow(1_000_000)


def pytest_report_header(config: pytest.Config) -> str:
    return f"random tests: --seed {config.option.seed} --seeds {config.option.seeds}"


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """The seeds that this test is to try."""
    first, count = request.config.option.seed, request.config.option.seeds
    found = [*KNOWN.get(request.node.name, ()), *range(first, first + count)]
    print(f"seeds {found}: --seed {first}")
    return found
