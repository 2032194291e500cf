"""A Flask application with a database of its own: each request that is answered has its row, its message
and its confirmation, once, whatever is killed and sent again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import eosdb
from tests.crash.children import environment
from tests.examples.running import run
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

CLIENTS = 8
WISHES = [("tango", f"guest-{i}") for i in range(60)] + [("swing", f"s-{i}") for i in range(9)]
OWN = ("course", "booking", "confirmation")


@contextlib.contextmanager
def application(path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "flask", "--app", str(ROOT / "examples/flask_bookings.py")]
    with open(path.with_suffix(".log"), "ab") as log:
        server = subprocess.Popen(
            [*command, "run", "--port", str(port)],
            cwd=path.parent,
            env=environment(BOOKINGS_DB=str(path)),
            stdout=log,
            stderr=log,
        )
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def book(port: int, wish: tuple[str, str]) -> int:
    """Ask until there is an answer, as a client does that has lost one. Returns the answer's status."""
    course, guest = wish
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/bookings",
        json.dumps({"course": course, "guest": guest}).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": guest},
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            return refusal.code
        except OSError:
            time.sleep(0.05)
    pytest.fail("no answer")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def own_tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(path)
    try:
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in OWN}
    finally:
        connection.close()


def test_an_application_with_a_database_of_its_own_gets_an_outbox(tmp_path: Path) -> None:
    path, port = tmp_path / "bookings.db", free_port()
    run("flask_bookings.py", "old", str(path), folder=tmp_path)
    adopt = [sys.executable, "-m", "eosdb.cli", "init", str(path), "--adopt", "--wal"]
    subprocess.run(adopt, check=True, capture_output=True, env=dict(os.environ))
    with ThreadPoolExecutor(CLIENTS) as clients:
        with application(path, port) as server:
            answers = [clients.submit(book, port, wish) for wish in WISHES]
            while sum(answer.done() for answer in answers) < 20:
                time.sleep(0.01)
            server.kill()
        with application(path, port):
            statuses = [answer.result() for answer in answers]
            again = list(clients.map(lambda wish: book(port, wish), WISHES))
    assert set(statuses) <= {200, 201, 409}
    assert statuses.count(409) == again.count(409) == 4, "nine guests wanted five places"
    assert set(again) == {200, 409}, "booked again is not booked twice"
    booked = {wish for wish, status in zip(WISHES, again, strict=True) if status == 200}

    run("flask_bookings.py", "mail", str(path), folder=tmp_path)
    before = own_tables(path)
    assert before["course"] == [(1, "tango", 40), (2, "swing", 0)]
    assert len(before["booking"]) == len(before["confirmation"]) == len(booked)
    assert {text for _, text in before["confirmation"]} == {f"{g}: {c}" for c, g in booked}
    with eosdb.connect(path, read_only=True) as db:
        messages = [json.loads(v) for (v,) in db.query("SELECT value FROM committed_records").rows]
        assert db.verify().ok
    assert sorted((m["course"], m["guest"]) for m in messages) == sorted(booked)
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA user_version").fetchone() == (12,)
    finally:
        connection.close()
