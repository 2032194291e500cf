"""What exactly-once costs: eosdb, raw sqlite3 and every peer that is there, side by side.

    python -m benchmarks [--rounds N] [--only CASE]… [--quick] [--large-file PATH]

Measures the cases and writes RESULTS.md and plots/ beside this file, anew after each case; with `--only` or
`--quick` it writes only where `--output` says, and prints in any case.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks import (
    beside_kafka,
    contention,
    growing,
    latency,
    machine,
    measure,
    plots,
    reading,
    report,
    wire,
    writing,
    years,
)
from benchmarks.measure import Case, Settings

HERE = Path(__file__).parent


def cases(settings: Settings) -> list[Case]:
    """All cases, the quick ones first."""
    rooms = (writing, latency, contention, beside_kafka, wire, reading, years, growing)
    return [case for room in rooms for case in room.cases(settings)]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=asked.folder, prefix="bench-") as cache:
        large_file: Path = asked.large_file or Path(cache, "large.db")
        settings = Settings(
            quick=asked.quick,
            rounds=asked.rounds,
            folder=asked.folder,
            cache=large_file.parent,
            large_file=large_file,
            large_records=asked.large_records or (2_000 if asked.quick else 10_000_000),
            large=asked.large,
        )
        known = {case.name: case for case in cases(settings)}
        if asked.list:
            print("\n".join(f"{case.name:16} {case.title}" for case in known.values()))
            return 0
        unknown = set(asked.only) - set(known)
        if unknown:
            raise SystemExit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        output: Path | None = asked.output
        if output is None and not asked.only and not asked.quick:
            output = HERE
        return _run([known[name] for name in asked.only or known], settings, output)


def _run(chosen: Sequence[Case], settings: Settings, output: Path | None) -> int:
    described = machine.description(settings.folder)
    results: list[measure.Result] = []
    drawn: list[Path] = []
    text = ""
    for case in chosen:
        start = perf_counter()
        results.append(measure.run(case, settings))
        print(f"{case.name}: {perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if output is not None:
            drawn += plots.draw(results[-1:], settings, output / "plots")
        text = report.markdown(results, described, settings, drawn)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            (output / "RESULTS.md").write_text(text, encoding="utf-8")
    print(text)
    failed = report.failed(results)
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="eosdb, raw sqlite3 and its peers, side by side."
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument(
        "--only", action="append", default=[], metavar="CASE", help="this case; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs")
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="where files are made: the disk to be measured"
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="a million transactions in the case `history`, 50 million records (20 GB) in `per-record`",
    )
    parser.add_argument(
        "--large-file",
        type=Path,
        help="keep the large file here, and others beside it, or find them",
    )
    parser.add_argument(
        "--large-records", type=int, help="records in it; a tenth as many transactions"
    )
    parser.add_argument("--output", type=Path, help="the folder for RESULTS.md and plots/")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
