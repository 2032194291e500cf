"""Progress of long work: lines where nobody looks, a bar on a terminal, and never a word on stdout."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from eosdb.cli.output import Pace, progress
from eosdb.testing.kafka import KafkaDouble

Run = Callable[..., Result]


def test_the_text_has_the_amount_the_rate_and_the_time_left() -> None:
    pace = Pace("events")
    pace.text(60_000, 0, 4_000_000)  # What goes before the work itself is no part of its rate.
    texts = [pace.text(60_000 + at * 5_000, at * 1_000_000, 4_000_000) for at in (1, 2, 4)]
    assert texts == [
        "1,000,000 events (25 %), 200,000 a second, 15 s left",
        "2,000,000 events (50 %), 200,000 a second, 10 s left",
        "4,000,000 events (100 %), 200,000 a second, 0 s left",
    ]


def test_units_may_be_other_than_what_the_share_is_of() -> None:
    """As `ingest` has it: records are counted, bytes are what there is to do; some were done before."""
    pace = Pace("records")
    pace.text(0, 5_000, 10_000, 0)
    assert pace.text(10_000, 7_500, 10_000, 50) == "50 records (75 %), 5 a second, 10 s left"
    assert pace.text(20_000, 12_000, 10_000, 140) == "140 records (100 %), 7 a second, 0 s left"


def test_without_a_total_there_is_neither_a_share_nor_an_end() -> None:
    pace = Pace("records")
    pace.text(0, 0, None, 0)
    assert pace.text(5_000, 9_999, None, 50) == "50 records, 10 a second"


def test_without_a_terminal_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("verify", "events") as report:
        report(0, 10)
        report(10, 10)
    assert capsys.readouterr() == ("", "")


def on_a_terminal(*arguments: str) -> tuple[str, str, int]:
    """What a command writes to stdout, and to a terminal of 90 columns as its stderr; its status."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    command = [sys.executable, "-m", "eosdb.cli", *arguments]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, text=True, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # Linux says so when the other end is closed.
            break
        if not data:
            break
        shown += data
    os.close(master)
    out, _ = process.communicate()
    return out, shown.decode(), process.returncode


@pytest.mark.process
def test_a_bar_on_a_terminal(run: Run, db_path: Path, tmp_path: Path) -> None:
    run("init")
    run("topics", "create", "t")
    (tmp_path / "[red]in.txt").write_text("x\n" * 500)
    out, shown, status = on_a_terminal(
        "--db", str(db_path), "ingest", "t", str(tmp_path / "[red]in.txt"),
        "--transaction-size", "10",
    )  # fmt: skip
    assert (out, status) == ("", 0), shown
    assert "[red]in.txt " in shown
    assert "━" in shown
    assert "500 records (100 %), " in shown
    assert " a second, 0 s left" in shown
    out, shown, status = on_a_terminal("--db", str(db_path), "verify")
    with eosdb.connect(db_path, read_only=True) as db:
        events = db.info()["journal_position"]
    assert (out.startswith(f"ok: {events} events, "), status) == (True, 0), out
    assert f"{events} events (100 %), " in shown


# What each says beside its bar; `{}` is the folder of the test, CLUSTER the address of a Kafka.
WAITED_FOR = {
    "backup t.db {}/copy.db": "pages (100 %)",
    "compact t.db": "pages (100 %)",
    "dlq replay t.db dead": "replay",
    "export t.db {}/table": "offsets (100 %)",
    "fetch file://{}/bucket/ID {}/got.db": "bytes (100 %)",
    "housekeeping t.db": "housekeeping",
    "info t.db --sizes": "pages (100 %)",
    "ingest t.db t {}/in.txt": "records (100 %)",
    "init t.db": "init",
    "inspect extract t.db {}/new.db": "events (100 %)",
    "inspect rebuild t.db": "events (100 %)",
    "migrate t.db": "migrate",
    "migrate-to-kafka t.db --to CLUSTER --topic t --execute": "records (100 %)",
    "publish t.db file://{}/bucket": "bytes (100 %)",
    "relay t.db --to {}/other.db --create --once": "records (100 %)",
    "restore t.db {}/then.db --position 1": "pages and events (100 %)",
    "verify t.db": "events (100 %)",
    "verify t.db --untrusted": "events (100 %)",
}


def fail(record: eosdb.ConsumerRecord) -> None:
    raise ValueError("always")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 500 records, dead letters and a table of its own, an input, and a published copy."""
    folder = tmp_path_factory.mktemp("waiting")
    with eosdb.connect(folder / "t.db", durability="off") as db:
        db.admin.create_topic("t")
        db.producer().send_many("t", [b"v"] * 500)
        db.admin.create_topic("failing")
        db.producer().send_many("failing", [b"v"] * 5)
        settings = {"group_id": "g", "dead_letter_topic": "dead", "max_attempts": 1}
        eosdb.process(db, "failing", fail, until_idle_ms=1, **settings)  # type: ignore[arg-type]
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE own (number INTEGER)")
        db.publish_copy(f"file://{folder}/bucket")
    (folder / "in.txt").write_text("x\n" * 50)
    return folder


@pytest.fixture
def cluster(line: str, tmp_path: Path) -> Iterator[str]:
    """Of the one line that has it."""
    if "CLUSTER" not in line:
        yield ""
        return
    with KafkaDouble(tmp_path / "cluster.db", auto_create_topics_enable=False) as made:
        yield made


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("line", WAITED_FOR)
def test_every_command_that_may_take_long_shows_how_far_it_is(
    line: str, folder: Path, cluster: str, tmp_path: Path
) -> None:
    said = WAITED_FOR[line]
    with eosdb.connect(folder / "t.db", read_only=True) as db:
        published = str(db.info()["file_id"])
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    line = line.replace("CLUSTER", cluster)
    arguments = line.replace("ID", published).format(*[tmp_path] * 2).split()
    arguments = [f"{tmp_path}/t.db" if word == "t.db" else word for word in arguments]
    _, shown, status = on_a_terminal(*arguments)
    assert status == 0, shown
    assert said in shown
    assert "━" in shown


@pytest.mark.process
@pytest.mark.parametrize("line", ["--quiet verify t.db", "verify t.db -q", "verify --quiet t.db"])
def test_quiet_means_no_bar_wherever_it_stands(line: str, folder: Path) -> None:
    words = [f"{folder}/t.db" if word == "t.db" else word for word in line.split()]
    out, shown, status = on_a_terminal(*words)
    assert (out.startswith("ok: "), shown, status) == (True, "", 0)


@pytest.mark.process
def test_a_closed_stderr_is_no_traceback(run: Run, db_path: Path, tmp_path: Path) -> None:
    run("init")
    run("topics", "create", "t")
    (tmp_path / "in.txt").write_text("x\n")
    command = f"{sys.executable} -m eosdb.cli --db {db_path} ingest t {tmp_path}/in.txt 2>&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode == 0
    assert run("consume", "t", "--from-beginning").stdout == "x\n"
