"""What the figures were found on: figures without it say nothing to anybody."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import sysconfig
from contextlib import closing
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter, process_time

from benchmarks import kafka
from eosdb.native import accelerator

_OPTIONS = (
    "DEFAULT_CACHE_SIZE", "DEFAULT_MMAP_SIZE", "DEFAULT_PAGE_SIZE", "DEFAULT_SYNCHRONOUS",
    "DEFAULT_WAL_SYNCHRONOUS", "DEFAULT_WAL_AUTOCHECKPOINT", "OMIT_LOOKASIDE", "SECURE_DELETE",
    "SYSTEM_MALLOC", "TEMP_STORE", "THREADSAFE",
)  # fmt: skip
"""Compile options of SQLite that one feels."""
_PACKAGES = ("eosdb", "eventsourcing", "persist-queue", "confluent-kafka")


def description(folder: Path) -> dict[str, str]:
    """The machine in words; `folder` is where the files of the benchmark are."""
    system = file_system(folder)
    return {
        "date": date.today().isoformat(),
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "file system": system
        + (" – **in memory, nothing here is durable**" if _in_memory(system) else ""),
        "fsync of 4 KiB appended, median": f"{fsync_ms(folder):.3f} ms",
        "Python": python(),
        "SQLite": sqlite3.sqlite_version,
        "SQLite compiled with": ", ".join(_compiled()),
        "durability": '`"full"` where a row says no other: each commit is synced',
        "accelerator": "yes" if (road := accelerator.road()) is True else f"no: {road}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "Kafka": kafka.description(),
    }


def python() -> str:
    """The version, and whether the interpreter was compiled with profiles, which makes it faster. Debian
    does so without saying it, so the speed of plain Python is told, too."""
    given = sysconfig.get_config_var("CONFIG_ARGS") or ""
    used = [option for option in ("--enable-optimizations", "--with-lto") if option in given]
    options = " ".join(used) or "without --enable-optimizations"
    return f"{platform.python_version()}, configured {options}, {call_ns():.0f} ns for a call"


def call_ns(calls: int = 20_000) -> float:
    """The least CPU time of one of many calls of a small function."""

    def called(items: dict[int, tuple[int, str]], i: int) -> int:
        items[i % 100] = (i, str(i))
        return len(items[i % 100][1])

    found, items = [], dict[int, tuple[int, str]]()
    for _ in range(20):
        start = process_time()
        for i in range(calls):
            called(items, i)
        found.append(process_time() - start)
    return min(found) / calls * 1e9


def software() -> str:
    """What every figure depends on, in a line."""
    return f'Python {python()}; SQLite {sqlite3.sqlite_version}; `durability="full"`'


def fsync_ms(folder: Path, times: int = 100) -> float:
    """The median time of one fsync after a page was appended."""
    found = []
    with TemporaryFile(dir=folder) as file:
        for _ in range(times):
            file.write(bytes(4096))
            file.flush()
            start = perf_counter()
            os.fsync(file.fileno())
            found.append(perf_counter() - start)
    return statistics.median(found) * 1000


def file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, `unknown` where /proc does not say."""
    best, found = "", "unknown"
    place = str(folder.resolve())
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _, mount, kind, *_ = line.split(" ")
        mount = mount.encode().decode("unicode_escape")
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, kind
    return found


def _in_memory(system: str) -> bool:
    return system in ("tmpfs", "ramfs")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _compiled() -> list[str]:
    with closing(sqlite3.connect(":memory:")) as memory:
        options = [option for (option,) in memory.execute("PRAGMA compile_options")]
    return [option for option in options if option.partition("=")[0] in _OPTIONS]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
