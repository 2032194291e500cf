"""The eosdb files of a request: one path, a list, globs, or directories. `named` expands a path."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import eosdb
from eosdb.admin.fleet import files_at
from eosdb.admin.summary import FileSummary
from eosdb.admin.tools import Tools
from eosdb.integrations import publishing
from eosdb.model.damage import parsed
from eosdb.model.validation import is_url
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import CATALOG, boolean


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether the path is a URL other than `file:`, which Spark prepends to local paths."""
    text = os.fspath(path)
    return is_url(text) and not text.startswith("file:")


def look(path: str, marks_of: Callable[[str], Iterable[str]]) -> FileSummary:
    """Return the summary of the latest snapshot, like `summary.look` for a local file. Raises StorageError,
    CorruptDatabaseError and ConfigError."""
    (published,) = publishing.published(path)
    manifest = published.manifest
    # The manifest has only the marks of the latest snapshots; to check other marks, open the file.
    unknown = set(marks_of(manifest.file_id)) - {manifest.mark, *manifest.marks}
    departures = {}
    if unknown:
        with connect(path) as db:
            for mark in unknown:
                if (why := Tools(db.admin).history_departure(mark)) is not None:
                    departures[mark] = why
    return FileSummary(
        manifest.file_id, manifest.position, manifest.mark, manifest.partitions, departures, {}
    )


def connect(path: str) -> eosdb.Database:
    """Open a file read-only; fetch it first if it is remote."""
    return eosdb.connect(publishing.fetch(path) if is_remote(path) else path, read_only=True)


Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a request, in order. `is_fleet`: the request may match several files, even if it matches
    one now."""

    paths: tuple[str, ...]
    is_fleet: bool
    missing: tuple[str, ...] = ()


def given(options: Mapping[str, str]) -> Given:
    """The path or paths: Spark passes `load("x")` as `path`, `load(["x", "y"])` as `paths` (JSON). Raises
    SparkOptionError if there is neither."""
    many, one = options.get("paths"), options.get("path")
    if many is not None:
        try:
            return [str(path) for path in parsed(many)]
        except (TypeError, ValueError):
            raise SparkOptionError(f"option paths: got {many!r}, expected a JSON array") from None
    if one is None:
        raise SparkOptionError(
            f"no file is named; give load(path), or option path. In a table: {CATALOG}"
        )
    return one


def of_options(options: Mapping[str, str]) -> Files:
    """Resolve the files of a request. Raises SparkOptionError for missing files, unless
    ignoreMissingFiles."""
    lower = {name.lower(): value for name, value in options.items()}
    may_be_missing = boolean(lower, "ignoremissingfiles", default=False)
    return resolve(given(options), may_be_missing=may_be_missing)


def local(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:")


def is_fleet(request: Given) -> bool:
    """Whether the request may match several files; does not list them."""
    if not isinstance(request, str | os.PathLike):
        return True
    path = local(os.fspath(request))
    if is_remote(path):
        return not publishing.is_file(path)
    return os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path))


def absolute(path: str | os.PathLike[str]) -> str:
    """Make a path absolute; a URL is unchanged."""
    return os.fspath(path) if is_remote(path) else os.path.abspath(local(os.fspath(path)))


def resolve(request: Given, *, may_be_missing: bool = False) -> Files:
    """Resolve a request. Raises SparkOptionError for a path that matches nothing, unless it is one of
    several and `may_be_missing`."""
    items = [request] if isinstance(request, str | os.PathLike) else request
    are_many = is_fleet(request)
    paths: dict[str, None] = {}
    missing: list[str] = []
    for item in items:
        path = local(os.fspath(item))
        matches = named(path)
        if not matches and not (may_be_missing and are_many):
            raise SparkOptionError(
                f"{path}: found nothing; expected a file, a folder with *.db files, a pattern that "
                "matches files, or a place with published files"
            )
        if not matches and not os.path.isdir(path) and not glob.has_magic(path):
            missing.append(absolute(path))
        paths.update(dict.fromkeys(matches))
    return Files(tuple(paths), are_many, tuple(missing))


def named(path: str) -> list[str]:
    """Expand one path to absolute paths, in order: the file itself, the files of a folder or pattern, or
    the files published below a URL or in a folder, such as a mounted bucket. Opens nothing."""
    if is_remote(path):
        return publishing.files(path)
    folder = os.path.abspath(path)
    found = files_at(folder)
    if not found and os.path.isdir(folder) and glob.glob("*/latest.json", root_dir=folder):
        return publishing.files(f"local://{folder}")
    return found
