"""A program that is forked from the zygote finds what a started one finds, and ends as it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import zygote
from tests.integrations.lakehouse.tables import LIBRARIES
from tests.tidy.tree import ROOT

PROBE = """
import gc, os, signal, sys, threading, warnings
files = sorted(os.listdir("/proc/self/fd"), key=int)[:-1]  # The last one is the folder itself.
for name, found in {
    "arguments": sys.argv, "path": sys.path[0], "name": __name__, "directory": os.getcwd(),
    "environment": sorted(os.environ.items()), "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
    "files": files, "parent": os.getppid(), "group": os.getpgrp(), "session": os.getsid(0),
    "umask": os.umask(0), "threads": os.listdir("/proc/self/task") == [str(os.getpid())],
    "main thread": threading.current_thread() is threading.main_thread(),
    "thread id": threading.get_native_id() == os.getpid(),
    "filters": warnings.filters, "collector": (gc.isenabled(), gc.get_threshold()),
    "streams": [
        (s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno())
        for s in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "main": vars(sys.modules["__main__"]) is globals(),
}.items():
    print(name, found)
"""
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="forks as Linux does"),
]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def both(*words: str, **settings: Any) -> list[Ended]:
    """The answers of a program that is started and of one that is forked."""
    answers = []
    for start in (zygote.REAL, zygote.Popen):
        with start(
            [sys.executable, *words], stdout=-1, stderr=-1, text=True, **settings
        ) as process:
            said = process.communicate()
        answers.append(Ended(process.returncode, *said))
    return answers


@pytest.fixture(autouse=True)
def _forks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VARIABLE", "of the test")
    before = os.getpid()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert zygote._owner == before


@pytest.mark.parametrize("form", ["-c", "file", "-W", "-P"])
def test_a_program_inherits_nothing_but_modules(form: str, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    words = {
        "-c": ["-c", PROBE, "a", "b"],
        "file": [str(tmp_path / "probe.py"), "a"],
        "-W": ["-W", "ignore", "-c", PROBE],
        "-P": ["-P", "-c", PROBE, "a"],
    }[form]
    started, forked = both(*words, cwd=tmp_path, env={**os.environ, "OTHER": "1"})
    assert (started.returncode, started.stderr) == (0, "")
    assert forked.stderr == ""
    assert forked.stdout.splitlines() == started.stdout.splitlines()


def test_a_session_of_its_own_is_one() -> None:
    code = "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())"
    started, forked = both("-c", code, start_new_session=True)
    assert started.stdout == forked.stdout == "True\n"


@pytest.mark.parametrize(
    "code",
    [
        "", "import sys; sys.exit(3)", "raise SystemExit('why')", "raise ValueError('what')",
        "raise KeyboardInterrupt", "import os; os.abort()", "import os; os._exit(4)", "print('half",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import signal, threading; signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)",
        "import atexit; atexit.register(print, 'last'); print('first')",
        "import threading; threading.Timer(0.01, print, ['after the main thread']).start()",
    ],
)  # fmt: skip
def test_it_ends_as_a_started_one_does(code: str) -> None:
    started, forked = both("-c", code)
    assert forked == started


def test_a_module_is_run_as_the_program() -> None:
    started, forked = both("-m", "eosdb.cli", "topics", "--help")
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert "Usage: eosdb topics" in forked.stdout


def test_two_children_share_no_random_numbers() -> None:
    code = "import random, uuid; print(random.random(), uuid.uuid4())"
    assert len({each.stdout for _ in range(2) for each in both("-c", code)}) == 4


def test_the_zygote_holds_no_file_and_no_database() -> None:
    code = (
        "import sys, tests.zygote as z; assert 'eosdb.store.store' in sys.modules; print(z._open_files()); "
        "from eosdb.system.lock_file import _open; print(_open)"
    )
    _, forked = both("-c", code, cwd=ROOT)
    assert forked.stdout == "[]\nset()\n", forked.stderr


def test_a_zygote_with_other_modules_has_no_thread_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zygote, "imported", LIBRARIES)
    code = (
        "import os, sys; print(os.listdir('/proc/self/task') == [str(os.getpid())], "
        f"set({LIBRARIES}) <= sys.modules.keys(), os.environ.keys() & {set(zygote._NO_THREADS)})"
    )
    for _ in range(2):
        assert (
            subprocess.check_output([sys.executable, "-c", code], text=True) == "True True set()\n"
        )


def test_a_killed_child_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL


def test_what_is_about_the_start_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [sys.executable, "-c", "import sys; print('eosdb.store.store' in sys.modules)"]
    assert subprocess.check_output(loaded, text=True) == "True\n"
    other_road = "" if os.environ.get("EOSDB_PORTABLE") else "1"
    for environment in ({"PYTHONHASHSEED": "5"}, {"LANG": "C"}, {"EOSDB_PORTABLE": other_road}):
        said = subprocess.check_output(loaded, text=True, env={**os.environ, **environment})
        assert said == "False\n", environment
    monkeypatch.setattr(zygote, "enabled", False)
    assert subprocess.check_output(loaded, text=True) == "False\n"
