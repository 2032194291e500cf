"""The file of each released schema, made by the code of its time (scripts/make_schema_file.py), with an
event of every kind that there was then."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eosdb.store.schema.newest import SCHEMA_VERSION
from tests.tidy.tree import ROOT

VERSIONS: Final = range(1, SCHEMA_VERSION + 1)


def schema_file(version: int) -> Path:
    return ROOT / f"tests/data/schema_{version:04}.db"
