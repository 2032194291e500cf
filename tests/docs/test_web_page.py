"""docs/web.md: its commands serve its applications to fifty clients; their file is the judge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT
from tests.waiting import eventually
from tests.web_server import CLIENTS, Server, commands_of, files_of, running

pytestmark = pytest.mark.process

PAGE = ROOT / "docs/web.md"
COMMANDS = commands_of(PAGE)
SERVERS = [command for command in COMMANDS if not command.startswith("pytest")]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    files_of(PAGE, tmp_path)


def paths_of(command: str) -> tuple[str, ...]:
    return ("/orders", "/orders/async") if "fastapi_app" in command else ("/orders",)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One of each command for all its tests."""
    folder = tmp_path_factory.mktemp("web")
    files_of(PAGE, folder)
    with running(request.param, folder) as started:
        yield started
    started.check()


def by(*commands: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", commands, indirect=True)


@by(*SERVERS)
def test_fifty_clients_get_no_error_but_those_they_ask_for(server: Server) -> None:
    """Rows, records and answers 200 are the same, in whatever threads and processes the requests ran.

    A hundred clients are more than the threads of anyio's pool, each of which waits for a block's turn.
    """
    crowd = 100 if "uvicorn" in server.command else 0
    server.order(("/orders",), 1, clients=crowd)
    assert list(server.answers.values()) == [200] * crowd
    server.order(paths_of(server.command), 3)
    server.check()
    assert {what.split("-")[0] for what, s in server.answers.items() if s == 200} == {"good"}
    statuses = Counter(server.answers.values())
    assert statuses == {200: crowd + 2 * CLIENTS, 409: CLIENTS}, server.log()


@by(SERVERS[1], SERVERS[3])
def test_a_worker_that_is_killed_takes_no_answer_back(server: Server) -> None:
    """And keeps nobody from going on: no lock stays."""
    with server.ordering(paths_of(server.command), 6):
        os.kill(server.workers()[-1], signal.SIGKILL)
    before = len(server.answers)
    server.order(paths_of(server.command), 1, clients=2)
    assert [server.answers[f"good-{before}-{number}-0"] for number in range(2)] == [200, 200]
    server.check()


@by(*(command for command in SERVERS if "--preload" in command))
def test_a_reload_and_a_shutdown_let_running_requests_end(server: Server) -> None:
    before = set(server.workers())
    with server.ordering(("/orders",), 4):
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not before & set(server.workers()))
    with server.ordering(("/orders",), 4):
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
    server.check()


def test_the_program_with_a_connection_of_its_own_runs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "own_connection.py"], cwd=tmp_path, check=True)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    (command,) = [each for each in COMMANDS if each.startswith("pytest")]
    done = ended(
        [sys.executable, "-m", *command.split(), "-p", "no:cacheprovider", "--rootdir=."],
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
