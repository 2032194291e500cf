"""Programs that run are told from outside what fails in them, and what time it is: Python's and Java's."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.orders import Orders
from tests.chaos.test_power_cuts import disk
from tests.trials.judges.artifacts import QUICK

pytestmark = pytest.mark.crash

__all__ = ["disk"]
DAY_S = 86_400
PROGRAM = """
import ctypes, os, sys, threading, time
def write(path):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(descriptor, b"x"); os.fsync(descriptor)
    finally:
        os.close(descriptor)
def thread(_):
    thread = threading.Thread(target=int); thread.start(); thread.join()
def inotify(_):
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "")
    os.close(descriptor)
def clock(_):
    begin = time.monotonic(); lock = threading.Lock(); lock.acquire()
    lock.acquire(timeout=0.01); assert time.monotonic() - begin < 3600
    return int(time.time())
for line in sys.stdin:
    name, _, argument = line.strip().partition(" ")
    try:
        print(globals()[name](argument), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    except RuntimeError as error:
        print(error, flush=True)
"""
JAVA = """
public class Clock {
    public static void main(String[] given) throws Exception {
        while (System.in.read() >= 0) {
            synchronized (given) { given.wait(10); }
            System.out.println(System.currentTimeMillis() / 1000);
        }
    }
}
"""


class Program:
    """Answers a line with a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[Program]:
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Program(process)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders", ("client", "server"))


def test_the_calls_of_one_role_fail_as_ordered(tmp_path: Path, disk: Path, orders: Orders) -> None:
    command, file = [sys.executable, "-c", PROGRAM], tmp_path / "file"
    with (
        running(command, orders.environment("client", disk, tmp_path)) as client,
        running(command, orders.environment("server", disk, tmp_path)) as server,
    ):
        cases = (
            ("w", errno.ENOSPC, f"write {file}", str(errno.ENOSPC)),
            ("s", errno.EIO, f"write {file}", str(errno.EIO)),
            ("o", errno.EMFILE, f"write {file}", str(errno.EMFILE)),
            ("i", errno.EMFILE, "inotify", str(errno.EMFILE)),
            ("p", errno.EAGAIN, "thread", "can't start new thread"),
        )
        for kinds, error, question, answer in cases:
            assert client.ask(question) == "None"
            orders.fail("client", kinds, 1, error)
            assert [client.ask(question) for _ in range(3)] == ["None", answer, "None"]
            assert (orders.calls("client"), orders.failed("client")) == (3, 1)
            orders.fail("client", kinds, 1, error, for_good=True)
            assert [client.ask(question) for _ in range(3)] == ["None", answer, answer]
            assert server.ask(question) == "None"
            orders.clear()
            assert client.ask(question) == "None"
            assert (orders.failed("client"), orders.failed("server")) == (2, 0)


@pytest.mark.parametrize("language", ["python", "java"])
def test_the_wall_clock_of_a_program_goes_forward_and_back(
    tmp_path: Path, disk: Path, orders: Orders, language: str
) -> None:
    """Who waits for a while does so on."""
    command, question = [sys.executable, "-c", PROGRAM], "clock"
    if language == "java":
        if shutil.which("javac") is None:
            pytest.skip(
                "NO JAVA COMPILER: Java is not tested here; apt-get install default-jdk-headless"
            )
        source = tmp_path / "Clock.java"
        source.write_text(JAVA, encoding="utf-8")
        command, question = ["java", *QUICK, str(source)], ""
    with running(command, orders.environment("client", disk, tmp_path)) as program:
        for ahead_s in (0, 10 * DAY_S, -10 * DAY_S, 0):
            orders.clock("client", ahead_s * 1000)
            before = int(time.time())
            answer = int(program.ask(question)) - ahead_s
            assert before <= answer <= time.time()
