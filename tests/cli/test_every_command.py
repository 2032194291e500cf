"""Every command, in every format, on files of every size: what it prints can be read, by people in 80
columns and by programs.

The commands are called in this process; each once more as a process of its own, in a terminal of 80
columns with NO_COLOR; one of them by the installed script.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.cli.main import HIDDEN
from tests.cli.conftest import MAIN
from tests.readers import copy_as_original

pytestmark = [pytest.mark.process, pytest.mark.slow]

MANY = 100_000
"""Far more than a listing shows, and than are read at once."""
FORMATS = ("table", "json", "jsonl", "csv")
TP = TopicPartition("orders", 0)

COMMANDS = {
    "acls add": ["--principal", "User:a", "--operation", "all", "--resource-type", "cluster"],
    "acls list": [],
    "acls remove": ["--all"],
    "backup": ["TARGET"],
    "compact": [],
    "consume": ["orders", "--from-beginning", "--max-records", "5"],
    "delete-records": ["orders/0", "--before-offset", "1", "--yes"],
    "dlq list": ["orders"],
    "dlq replay": ["orders", "--offset", "0", "--to-topic", "other"],
    "dlq show": ["orders/0/0"],
    "export": ["TARGET"],
    "fetch": ["PUBLISHED", "TARGET"],
    "groups delete": ["billing", "--yes"],
    "groups describe": ["--all-groups"],
    "groups list": ["--state"],
    "groups reset-offsets": ["billing", "--topic", "orders", "--to-earliest"],
    "housekeeping": [],
    "info": [],
    "ingest": ["orders", "INPUT"],
    "init": ["FOREIGN", "--adopt"],
    "inspect extract": ["ADOPTED", "TARGET"],
    "inspect journal": [],
    "inspect log": ["orders", "0", "--max-batches", "3"],
    "inspect rebuild": [],
    "inspect snapshots": ["orders/0"],
    "metrics": [],
    "migrate": [],
    "produce": ["orders"],
    "publish": ["URL"],
    "migrate-to-kafka": ["--to", "127.0.0.1:1"],
    "relay": ["--to", "TARGET", "--create", "--once"],
    "restore": ["TARGET", "--position", "1"],
    "scheduled cancel": ["1.0"],
    "scheduled list": [],
    "serve": ["--port", "0"],
    "snapshots list": [],
    "snapshots take": [],
    "sql": ["SELECT count(*) AS n FROM committed_records"],
    "timeline": ["orders", "-o", "PICTURE"],
    "top": ["-b", "-n", "1"],
    "topics alter": ["orders", "--config", "retention.ms=-1"],
    "topics create": ["another"],
    "topics delete": ["orders", "--yes"],
    "topics describe": [],
    "topics list": [],
    "transactions abort": ["orders/0", "--start-offset", "OPEN"],
    "transactions describe": ["open"],
    "transactions describe-producers": ["orders/0"],
    "transactions fence": ["open"],
    "transactions find-hanging": [],
    "transactions list": [],
    "users add": ["carol"],
    "users list": [],
    "users remove": ["alice"],
    "ui": ["--port", "0"],
    "verify": [],
    "views create": ["orders", "--json", "a:INTEGER"],
    "views drop": ["typed"],
    "views list": [],
    "why": ["orders", "--group", "billing"],
}
REFUSED_WHEN_EMPTY = {
    "acls remove", "consume", "delete-records", "dlq list", "dlq replay", "dlq show", "groups delete",
    "groups reset-offsets", "ingest", "inspect log", "inspect snapshots",
    "produce", "restore", "timeline",
    "topics alter", "topics delete", "transactions abort", "transactions describe",
    "transactions describe-producers", "transactions fence", "views create",
    "users remove", "views drop", "why",
}  # fmt: skip
UNTIL_STOPPED = {"serve", "ui"}
"""They print one line and go on; tests/cli/test_serve.py and tests/cli/test_ui.py look at them. A page that
may change nothing only reads."""
WITH_A_CLUSTER = {"migrate-to-kafka"}
"""tests/integrations/moving/test_command.py has one."""
ENDING = set(COMMANDS) - UNTIL_STOPPED - WITH_A_CLUSTER
SLOW_ON_MANY = {"dlq list", "dlq replay", "dlq show", "export", "relay"}
"""They read every record of the topic, of a dead letter topic in life; exports and relays print one
line."""


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for child in command.commands:
            yield from leaves(command.commands[child], f"{name} {child}".strip())
    else:
        yield name, command


LEAVES = dict(leaves(MAIN))
for hidden in HIDDEN:
    for name, command in leaves(MAIN.commands[hidden], hidden):
        if command not in LEAVES.values():
            LEAVES[name] = command
LISTINGS = {
    name
    for name, command in LEAVES.items()
    if any(
        "--format" in option.opts
        and isinstance(option.type, click.Choice)
        and "json" in option.type.choices
        for option in command.params
    )
}


def make(path: Path, records: int) -> None:
    """A file with an open transaction, a group, a typed view, a user, an ACL and dead letters that are
    none."""
    with eosdb.connect(path, durability="off") as db:
        if records == 0:
            return
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("other")
        chunk = [Record(b"k%d" % (i % 97), b'{"a":%d}' % i) for i in range(min(records, 5_000))]
        for _ in range(max(records // 5_000, 1)):
            db.broker.append(TP, RecordBatch(chunk))
        db.broker.offset_commit("billing", {TP: OffsetAndMetadata(1, "note")})
        db.admin.create_view("typed", "orders", {"a": "INTEGER"})
        db.take_snapshot()
        me = db.broker.init_producer_id("open", 900_000)
        batch = RecordBatch([Record(value="ö\n\x1b[31m".encode())], *me, 0, True)
        db.broker.append(TP, batch, transactional_id="open")
        db.take_snapshot()
        db.admin.set_password("alice", "secret")
        db.admin.create_acls(
            eosdb.Acl("User:*", "all", kind, "*")
            for kind in ("topic", "group", "transactional_id", "cluster")
        )


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    sizes = {"empty": 0, "small": 20, "many": MANY}
    for name, records in sizes.items():
        make(folder / f"{name}.db", records)
        with eosdb.connect(folder / f"{name}.db", read_only=True) as db:
            db.publish_copy(f"file://{folder}/{name}-published")
    (folder / "input.ndjson").write_text('{"a": 1}\n{"a": 2}\n')
    return {name: folder / f"{name}.db" for name in sizes}


def arguments(name: str, path: Path, original: Path) -> list[str]:
    opened = {"small": "20", "many": str(MANY)}.get(original.stem, "0")
    target = path.parent / f"{path.stem}-copy.db"
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    foreign = path.parent / f"{path.stem}-foreign.db"
    if {"FOREIGN", "ADOPTED"} & set(COMMANDS[name]):
        foreign.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(foreign)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE own (x)")
    if "ADOPTED" in COMMANDS[name]:
        eosdb.connect(foreign, adopt=True).close()
    words = {
        "FOREIGN": str(foreign), "ADOPTED": str(foreign),
        "INPUT": str(original.parent / "input.ndjson"), "OPEN": opened, "TARGET": str(target),
        "PICTURE": str(target.with_suffix(".svg")), "URL": f"file://{target}-published",
        "PUBLISHED": f"file://{original.parent}/{original.stem}-published",
    }  # fmt: skip
    return ["--db", str(path), *name.split(), *(words.get(w, w) for w in COMMANDS[name])]


def test_every_command_is_looked_at_here() -> None:
    assert set(COMMANDS) == set(LEAVES)


def test_at_most_56_commands_are_shown() -> None:
    assert len(dict(leaves(MAIN))) <= 56


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("log dump", "inspect log"), ("snapshots show", "inspect snapshots"),
        ("journal", "inspect journal"), ("rebuild", "inspect rebuild"),
    ],
)  # fmt: skip
def test_an_earlier_name_is_the_same_command_and_hidden(earlier: str, now: str) -> None:
    group, _, rest = earlier.partition(" ")
    command = MAIN.commands[group]
    assert (command.commands[rest] if rest else command) is LEAVES[now]
    assert f"  {group} " not in CliRunner().invoke(MAIN, ["--help"]).output


@pytest.mark.parametrize("size", ["empty", "small", "many"])
@pytest.mark.parametrize("name", sorted(ENDING))
def test_what_it_prints_can_be_read(
    tmp_path: Path, originals: dict[str, Path], name: str, size: str
) -> None:
    if size == "many" and name in SLOW_ON_MANY:
        return
    path = originals[size]
    for output_format in FORMATS if name in LISTINGS else [None]:
        if name not in READING:
            path = tmp_path / f"{output_format}.db"
            copy_as_original(originals[size], path)
        words = arguments(name, path, originals[size])
        if output_format is not None:
            words += ["--format", output_format]
        result = CliRunner().invoke(MAIN, words, input='{"a": 3}\n', env={"NO_COLOR": "1"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        refused = size == "empty" and name in REFUSED_WHEN_EMPTY
        assert result.exit_code == refused, result.output
        if refused:
            assert result.stderr.startswith("error: ")
            assert len(result.stderr.splitlines()) == 1
        elif output_format == "json":
            assert isinstance(json.loads(result.stdout), list)
        elif output_format == "jsonl":
            assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())
        elif output_format == "csv":
            rows = list(csv.reader(io.StringIO(result.stdout)))
            assert len({len(row) for row in rows}) == 1
        else:
            assert "\x1b" not in result.output


FIELDS = Path(__file__).with_name("listing_fields.txt")
"""What docs/compatibility.md promises to programs: the fields of each listing."""


def test_the_fields_of_what_is_for_programs_stay(
    tmp_path: Path, originals: dict[str, Path]
) -> None:
    told = []
    for name in sorted(LISTINGS & ENDING):
        path = tmp_path / "f.db"
        copy_as_original(originals["small"], path)
        words = arguments(name, path, originals["small"])
        texts = {
            each: CliRunner().invoke(MAIN, [*words, "--format", each], input='{"a": 3}\n').stdout
            for each in (("json", "csv") if name in READING else ("csv",))
        }
        fields = next(csv.reader(io.StringIO(texts["csv"])))
        assert all([*row] == fields for row in json.loads(texts.get("json", "[]"))), name
        told.append(f"{name}: {', '.join(fields)}")
    promised = FIELDS.read_text(encoding="utf-8").splitlines()
    assert told == promised, "a field may be added behind the others (docs/compatibility.md)"


READING = {
    "acls list", "backup", "consume", "dlq list", "dlq show", "export",
    "fetch", "groups describe",
    "groups list", "groups reset-offsets", "info", "inspect journal", "inspect log", "inspect snapshots",
    "metrics",
    "publish",
    "restore", "scheduled list", "snapshots list",
    "sql", "timeline", "top", "topics describe", "topics list",
    "transactions describe",
    "transactions describe-producers", "transactions find-hanging",
    "transactions list", "users list", "verify", "views list", "why",
}  # fmt: skip
"""Commands that change nothing, so that they may share a file."""


@pytest.mark.parametrize("name", sorted(READING | (set(COMMANDS) - {"ui"})))
def test_read_only_changes_nothing_and_refuses_what_writes(
    tmp_path: Path, originals: dict[str, Path], name: str
) -> None:
    path = tmp_path / "small.db"
    copy_as_original(originals["small"], path)
    content = path.read_bytes()
    words = arguments(name, path, originals["small"])
    result = CliRunner().invoke(MAIN, ["--read-only", *words])
    assert result.exit_code == (name not in READING)
    assert result.exit_code == 0 or "--read-only" in result.stderr
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", sorted(ENDING))
def test_in_a_terminal_of_80_columns(tmp_path: Path, originals: dict[str, Path], name: str) -> None:
    path = tmp_path / "small.db"
    copy_as_original(originals["small"], path)
    script = [str(Path(sys.executable).parent / "eosdb")]
    program = script if name == "topics list" else [sys.executable, "-m", "eosdb.cli"]
    shown = in_terminal([*program, *arguments(name, path, originals["small"])])
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]", shown), "NO_COLOR means no colour"
    for line in shown.splitlines():
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line.rpartition("\r")[2])
        if name in LISTINGS - {"why"}:
            assert len(plain) <= 80, line


def in_terminal(command: list[str]) -> str:
    """What the command writes to a terminal of 80 columns; it must end with status 0."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        **os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80",
        "EOSDB_USER_PASSWORD": "secret",
    }  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    parts = []
    try:
        while part := os.read(master, 65_536):
            parts.append(part)
    except OSError:  # The other side has been closed.
        pass
    os.close(master)
    shown = b"".join(parts).decode(errors="replace")
    assert process.wait() == 0, shown
    return shown
