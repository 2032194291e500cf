"""Writes docs/internals/conformance.md by running the checks of `tests.conformance` against every system.

python -m scripts.make_conformance               # run all and write the page
python -m scripts.make_conformance --check       # run all and compare with the page
python -m scripts.make_conformance --only eosdb  # run one system and print
"""

from __future__ import annotations

import argparse
import difflib
import faulthandler
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance.catalog import CHECKS
from tests.conformance.sheet import document, run_all
from tests.conformance.systems import SYSTEMS, System

PAGE: Final = Path(__file__).parents[1] / "docs/internals/conformance.md"
LIMIT_S: Final = 600
"""All of it takes about three minutes; a double that hangs ends the script with a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the exactly-once checks and write the page.")
    parser.add_argument("--only", choices=[system.name for system in SYSTEMS])
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    options = parser.parse_args(arguments)
    systems = [system for system in SYSTEMS if options.only in (None, system.name)]
    if missing := _missing(systems):
        print(f"not installed: {missing}", file=sys.stderr)
        return 1
    page = document(run_all(CHECKS, systems), systems)
    if options.only:
        print(page, end="")
    elif options.check:
        return _compare(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    return 0


def _missing(systems: Sequence[System]) -> str:
    """What to do first; empty if nothing is missing."""
    packages = sorted({package for system in systems for package in system.missing()})
    programs = sorted({program for system in systems for program in system.missing_programs()})
    steps = [f"run `pip install {' '.join(packages)}` first"] if packages else []
    return ", ".join([*steps, *(f"install {program} first" for program in programs)])


def _compare(page: str) -> int:
    """Print how the page differs from what was measured; 1 if it does."""
    kept = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    names = (str(PAGE.name), "measured")
    difference = difflib.unified_diff(kept.splitlines(), page.splitlines(), *names, lineterm="")
    for line in difference:
        print(line)
    return int(kept != page)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    sys.exit(main())
