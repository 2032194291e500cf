"""A PostgreSQL server for the time of a run; `fsync` and `synchronous_commit` are on, as they come."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not.contract import Server
from benchmarks.why_not.servers import running

DURABLE = "fsync before each answer (PostgreSQL, `fsync` and `synchronous_commit` on)"


def binaries() -> Path | None:
    """Where `initdb` and `postgres` are; Debian keeps them off the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def absent() -> str | None:
    return None if binaries() else "PostgreSQL's server is not installed"


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """A new cluster behind a Unix socket; PostgreSQL refuses to run as root, then it is `postgres`."""
    programs = binaries()
    assert programs is not None
    user = "postgres" if os.geteuid() == 0 else None
    data = folder / "data"
    if user:
        shutil.chown(folder, user)
    subprocess.run(
        [programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8"],
        check=True, capture_output=True, user=user, cwd=folder,
    )  # fmt: skip
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-h", ""]
    log, listens = folder / "server.log", folder / ".s.PGSQL.5432"
    # SIGINT does not wait for clients that are still connected.
    with running(command, log=log, port=listens, user=user, end=signal.SIGINT) as pid:
        yield Server(str(folder), (pid,), data)


def connect(address: str, database: str) -> Any:
    psycopg: Any = import_module("psycopg")
    return psycopg.connect(dsn(address, database), autocommit=True)


def dsn(address: str, database: str) -> str:
    """`address` is the folder of the socket, or `127.0.0.1:port`."""
    host, _, port = address.partition(":")
    return f"host={host} port={port or 5432} user=postgres dbname={database}"


def create(address: str, database: str) -> None:
    """A database with a table of results."""
    with connect(address, "postgres") as server:
        server.execute(f'CREATE DATABASE "{database}"')
    with connect(address, database) as file:
        file.execute("CREATE TABLE results (id serial PRIMARY KEY, value text NOT NULL)")


def results(address: str, database: str) -> list[str]:
    with connect(address, database) as file:
        return [value for (value,) in file.execute("SELECT value FROM results ORDER BY id")]
