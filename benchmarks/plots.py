"""Pictures: throughput by the size of a transaction, commit latency and CPU per record by the size of the
file, and the size of a file by what it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks import growing, years
from benchmarks.measure import Result, Settings
from benchmarks.writing import SWEEP, SWEPT, swept_name


def draw(results: Sequence[Result], settings: Settings, folder: Path) -> list[Path]:
    """The plots of what was measured, named after their cases. None without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    by_name = {result.case.name: result for result in results if result.rounds}
    made = []
    if (sweep := by_name.get("batch-sizes")) is not None:
        series = {
            name: [(size, sweep.median(swept_name(name, size))) for size in SWEEP] for name in SWEPT
        }
        made.append(
            _draw(
                folder / "batch-sizes.svg", series, "records in each transaction or flush",
                "records per second", "Throughput, durable",
            )
        )  # fmt: skip
    if (latency := by_name.get("commit-latency")) is not None:
        sizes = [*growing.sizes(settings), settings.large_records]
        points = [(1, latency.median(growing.EMPTY))]
        points += [(size, latency.median(growing.with_records(size))) for size in sizes]
        made.append(
            _draw(
                folder / "commit-latency.svg", {"eosdb, transaction of one record": points},
                "records in the file (1: empty)", "median ms", "Durable commit",
            )
        )  # fmt: skip
    if (history := by_name.get("history")) is not None:
        kept = {"history ends": years.after, years.FOR_EVER: years.kept_for_ever}
        looks = years.grown(settings)
        made.append(
            _draw(
                folder / "history.svg",
                {name: [(n, history.median(row(n))) for n in looks] for name, row in kept.items()},
                "transactions of one record, ever", "MB", "Size of the file",
            )
        )  # fmt: skip
    if (growth := by_name.get("per-record")) is not None:
        made.append(
            _draw(
                folder / "per-record.svg",
                {
                    work: [(n, growth.median(growing.up_to(work, n))) for n in growing.grown(settings)]
                    for work in (growing.SENT, growing.READ)
                },
                "records in the file", "µs of CPU for each record", "A file that grows",
            )
        )  # fmt: skip
    return made


def _draw(
    path: Path,
    series: dict[str, list[tuple[int, float | None]]],
    across: str,
    up: str,
    title: str,
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "eosdb"  # The same figures make the same file.
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for name, points in series.items():
        there = [(x, y) for x, y in points if y is not None]
        axes.plot([x for x, _ in there], [y for _, y in there], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
