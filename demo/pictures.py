"""What is left beside the database to look at: the delays as a plot, and the timeline of the run."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pandas
from watching import KILLS

import eosdb
from eosdb.admin.timeline import svg

matplotlib.use("svg")
from matplotlib import pyplot


def draw_delays(sums: pandas.DataFrame, target: Path) -> None:
    """The delay of a flight of each carrier at each hour."""
    total = sums.groupby(["carrier", "hour"])[["flights", "minutes"]].sum()
    each = (total.minutes / total.flights).unstack("hour")
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    image = axes.imshow(each, cmap="RdYlBu_r", vmin=-10, vmax=40, aspect="auto")
    axes.set_xticks(range(len(each.columns)), each.columns)
    axes.set_yticks(range(len(each.index)), each.index)
    axes.set(title="Departures from New York, 2013", xlabel="hour", ylabel="carrier")
    figure.colorbar(image, label="minutes of delay per flight", extend="both")
    figure.savefig(target)
    pyplot.close(figure)


def draw_timeline(path: Path, topic: str, target: Path) -> None:
    """The topic along time, with a line for each program that was killed."""
    with eosdb.connect(path, read_only=True) as db:
        lanes = db.admin.timeline(topic, by="time")
    target.write_text(svg.document(lanes, KILLS), encoding="utf-8")
