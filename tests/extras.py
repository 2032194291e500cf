"""Where packages of an extra are missing, tests that need them are skipped, and a sentence says so.

That is what becomes of a test that fails since one of them cannot be imported. If its file cannot, or if a
file or a conftest.py skips itself, one test that is skipped stands for all of them: unlike a file that is
skipped, pytest-xdist counts it. `--no-skips` is for machines that have everything: skips fail there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


@cache
def _command_of() -> dict[str, str]:
    """The command that installs each package which the core does without."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))
    commands: dict[str, str] = {}
    for extra, packages in project["project"]["optional-dependencies"].items():
        for package in packages:
            commands.setdefault(_name(package), f"pip install -e '.[{extra}]'")
    for group, packages in project["dependency-groups"].items():
        for package in packages:
            if isinstance(package, str):
                commands.setdefault(_name(package), f"pip install --group {group}")
    return commands


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def sentence_for(error: BaseException | None) -> str | None:
    """What to install, if that is what the error, or one that led to it, comes from."""
    while error is not None and not isinstance(error, AssertionError):
        if isinstance(error, ModuleNotFoundError) and error.name:
            module = error.name.partition(".")[0].replace("_", "-")
            for package, command in _command_of().items():
                if f"{package}-".startswith(f"{module}-"):
                    return f"needs {package}: {command}"
        error = error.__cause__ or error.__context__
    return None


class Skipped(pytest.Item):
    """Stands for a file or folder whose packages are missing."""

    def __init__(self, *, sentence: str, **node: Any) -> None:
        super().__init__(**node)
        self.sentence = sentence

    def runtest(self) -> None:
        pytest.skip(self.sentence)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.sentence


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    sentence = sentence_for(report.call.excinfo.value) if report.failed else None
    if report.skipped and isinstance(report.longrepr, tuple):
        sentence = report.longrepr[2].removeprefix("Skipped: ")
    if sentence is None:
        return report
    skipped = Skipped.from_parent(collector, name="all", sentence=sentence)
    return pytest.CollectReport(collector.nodeid, "passed", None, [skipped])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="fail what is skipped: everything is installed here"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if report.failed and call.excinfo else None
    if sentence := sentence_for(error):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {sentence}")
    if report.skipped and item.config.getoption("no_skips"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} is skipped: {report.longrepr}"
    return report
