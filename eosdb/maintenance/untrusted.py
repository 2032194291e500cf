"""Checks a file of unknown origin before any SQL in it is executed.

First the text of the schema is compared with eosdb's. Only if they are equal, statements run on the tables
and the events are folded. A separate process does all this: the system limits its memory and CPU time, and
malicious bytes may kill it without harm to the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from enum import Enum
from typing import Final, NamedTuple

from eosdb.coordinator.projection import apply
from eosdb.errors import EosdbError
from eosdb.log import json_views
from eosdb.maintenance import verify
from eosdb.model.clock import SystemClock
from eosdb.model.damage import parsed
from eosdb.model.progress import Progress, silent
from eosdb.model.words import duration, size
from eosdb.store.file.connection import connect_untrusted
from eosdb.store.file.failures import translated
from eosdb.store.schema import guard, newest
from eosdb.store.schema.migrate import Opened
from eosdb.store.schema.newest import (
    ALEMBICS,
    APPLICATION_ID,
    IDENTITY_TABLE,
    SCHEMA_VERSION,
    newest_schema,
)
from eosdb.store.store import Store
from eosdb.system.descriptors import head

_MAGIC: Final = b"SQLite format 3\0"
MEMORY_BYTES: Final = 2 * 1024**3
"""The address space of the process; eosdb needs a tenth of it, and some copies of the largest record."""
_CPU_S: Final = 60
_MIB: Final = 1024 * 1024
_PROBLEMS: Final = 100
_LONGEST_PROBLEM: Final = 1_000


class Verdict(Enum):
    SOUND = "sound"
    """Its schema is eosdb's, and its tables follow from the events."""
    DAMAGED = "damaged"
    """The schema is eosdb's, but something else is wrong, or the check reached a limit."""
    NOT_OURS = "not ours"
    """The schema is not eosdb's: no statement was run on the file's tables."""


class Report(NamedTuple):
    verdict: Verdict
    problems: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """The owner's tables, views, triggers and indexes that do not use eosdb's."""
    events: int = 0
    elapsed_s: float = 0


def check(
    path: str,
    on_progress: Progress = silent,
    *,
    memory_bytes: int = MEMORY_BYTES,
    cpu_s: int | None = None,
) -> Report:
    """Check the file in a separate process. By default it may use a minute of CPU time, and a second more
    for each MiB of the file."""
    allowed_s = _CPU_S + os.stat(path).st_size // _MIB if cpu_s is None else cpu_s
    call = (
        f"from {__name__} import main; main({os.path.abspath(path)!r}, {memory_bytes}, {allowed_s})"
    )
    # With -P, Python imports no modules from the current folder, which may hold harmful ones.
    command = [sys.executable, "-P", "-c", call]
    report = None
    # In a new session, the process gets no Ctrl-C. The caller gets it, and ends the process.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                told = parsed(line)
                if isinstance(told, dict):
                    verdict, problems, others = (told.pop(name) for name in Report._fields[:3])
                    report = Report(Verdict(verdict), tuple(problems), tuple(others), **told)
                else:
                    on_progress(*told)
        except BaseException:
            process.kill()
            raise
    if report is not None and process.returncode == 0:
        return report
    why = f"exit status {process.returncode}"
    if process.returncode == -signal.SIGXCPU:
        why = f"it needed more CPU time than {duration(1000 * allowed_s)}"
    elif process.returncode < 0:
        why = signal.Signals(-process.returncode).name
    return Report(Verdict.DAMAGED, (f"the check did not finish: {why}",))


def main(path: str, memory_bytes: int, cpu_s: int) -> None:
    """The separate process: prints progress, then the report, as lines of JSON."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # End as soon as the caller has ended.
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        # Limits the temporary files that the replay writes.
        resource.RLIMIT_FSIZE: 4 * os.stat(path).st_size + 64 * _MIB,
    }
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for limit, most in limits.items():
        with contextlib.suppress(ValueError, OSError):  # A system may lack a limit.
            resource.setrlimit(limit, (most, most + 1))  # SIGXCPU comes first, then SIGKILL.

    def tell(done: int, total: int) -> None:
        sys.stdout.write(f"[{done}, {total}]\n")
        sys.stdout.flush()

    try:
        report = _checked(path, tell)
    except EosdbError as error:
        report = Report(Verdict.DAMAGED, (str(error),))
    except MemoryError:
        report = Report(Verdict.DAMAGED, (f"it needs more memory than {size(memory_bytes)}",))
    except Exception as error:  # An error of any kind shows that the file is damaged.
        report = Report(Verdict.DAMAGED, (f"{error!r}",))
    problems = [text[:_LONGEST_PROBLEM] for text in report.problems[:_PROBLEMS]]
    told = {**report._asdict(), "verdict": report.verdict.value, "problems": problems}
    sys.stdout.write(json.dumps(told))


def _checked(path: str, on_progress: Progress) -> Report:
    clock = SystemClock()
    start = clock.monotonic_ms()
    if (reason := _not_at_rest(path)) is not None:
        return Report(Verdict.NOT_OURS, (reason,))
    try:
        # decisions/0073: this connection runs no SQL from the file, whose schema is not checked yet.
        with translated(path), contextlib.closing(connect_untrusted(path)) as connection:
            strange, missing, others = _compared(connection)
    except EosdbError as error:
        verdict = Verdict.DAMAGED if _is_marked(path) else Verdict.NOT_OURS
        return Report(verdict, (str(error),))
    if strange or missing:
        verdict = Verdict.NOT_OURS if strange else Verdict.DAMAGED
        return Report(verdict, (*strange, *missing), tuple(others))
    store = Store(path, apply=apply, read_only=True, opened=Opened(None, None, untrusted=True))
    try:
        result = verify.verified(store, clock, on_progress)
    finally:
        store.close()
    elapsed_s = (clock.monotonic_ms() - start) / 1000
    verdict = Verdict.SOUND if result.ok else Verdict.DAMAGED
    return Report(verdict, result.problems, tuple(others), result.events, elapsed_s)


def _not_at_rest(path: str) -> str | None:
    """Return why the file must not be opened (such as a WAL that SQLite would replay), or None."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    for suffix in ("-wal", "-journal"):
        if os.path.lexists(path + suffix) and os.lstat(path + suffix).st_size:
            return (
                f"it has a {suffix} file, which SQLite would replay into it; ask for a backup (`eosdb "
                "backup`), which is one file"
            )
    return None if head(path, len(_MAGIC)) == _MAGIC else "it is not a SQLite database"


def _is_marked(path: str) -> bool:
    return int.from_bytes(head(path, 72)[68:], "big") == APPLICATION_ID


def _compared(connection: sqlite3.Connection) -> tuple[list[str], list[str], list[str]]:
    """Compare the schema with eosdb's. Returns three lists: differences because of which no statement may
    run, missing objects, and objects of the owner that do not use eosdb's tables."""
    connection.text_factory = lambda text: text.decode(errors="backslashreplace")
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    connection.text_factory = str
    ours = {(entry.type, entry.name): {(entry.table, entry.sql)} for entry in newest_schema()}
    equal = {row[:2] for row in rows if row[2:] in ours.get(row[:2], ())}
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    is_marked = application_id == APPLICATION_ID
    if not is_marked and {("table", ALEMBICS), ("table", IDENTITY_TABLE)} - equal:
        return [f"it has no tables of eosdb's (application_id {application_id:#x})"], [], []
    file = newest.of(connection)
    if file.version != SCHEMA_VERSION:
        return [
            f"it states schema {file.version}, but this eosdb can check only schema {SCHEMA_VERSION}; "
            "check it with the eosdb that wrote it"
        ], [], []  # fmt: skip
    typed: dict[str, str] = {}
    if ("table", "eosdb_json_views") in equal:
        typed = json_views.definitions(connection)
    strange, others = [], []
    for type_, name, table, sql in rows:
        if (type_, name) in equal or (type_, sql) == ("view", typed.get(name)):
            continue
        if (type_, name) in ours:
            strange.append(f"{name}: this {type_} is not as eosdb makes it")
        elif sql is None and table in {other for _, other in equal}:
            continue  # SQLite has made this index for PRIMARY KEY or UNIQUE.
        elif guard.is_own(name) or guard.is_own(table):
            strange.append(f"{name}: eosdb has no such {type_} (on {table})")
        else:
            others.append(f"{type_} {name}")
    missing = [
        f"{name}: this {type_} of eosdb's is gone"
        for type_, name in ours
        if not any(row[:2] == (type_, name) for row in rows)
    ]
    return strange, missing, others
