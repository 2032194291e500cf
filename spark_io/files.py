"""Which eosdb files a reader reads: one path, a list, globs, directories."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import SparkOptionError

SUFFIX = ".db"


@dataclass(frozen=True, slots=True)
class Files:
    """The files, in order. A fleet is a request that may match several files, even if it matches one
    today."""

    paths: tuple[str, ...]
    is_fleet: bool


def of_options(options: Mapping[str, str]) -> Files:
    """Spark passes `load("x")` as `path`, and `load(["x", "y"])` as `paths`, a JSON array."""
    many, one = options.get("paths"), options.get("path")
    if many is not None:
        return resolve([str(path) for path in json.loads(many)])
    if one is None:
        raise SparkOptionError("no file is named; give load(path), or option path")
    return resolve(one)


def local(path: str) -> str:
    """A path without the scheme that Spark prepends."""
    return path.removeprefix("file://").removeprefix("file:")


def resolve(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Files:
    """Raises SparkOptionError for a path that matches nothing."""
    is_fleet = not isinstance(given, str | os.PathLike)
    items = [given] if isinstance(given, str | os.PathLike) else given
    found: dict[str, None] = {}
    for item in items:
        path = local(os.fspath(item))
        if os.path.isdir(path):
            is_fleet = True
            matches = sorted(glob.glob(os.path.join(glob.escape(path), f"*{SUFFIX}")))
        elif os.path.exists(path):
            matches = [path]
        else:
            is_fleet = True
            matches = sorted(glob.glob(path, recursive=True))
        if not matches:
            raise SparkOptionError(
                f"{path}: there is no such file, no file {SUFFIX} in such a folder, and nothing that such "
                "a pattern fits"
            )
        found.update(dict.fromkeys(os.path.abspath(match) for match in matches))
    return Files(tuple(found), is_fleet)
