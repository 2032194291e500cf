"""A `subprocess.Popen` whose Pythons are forked from a process that has eosdb imported: a start costs a
few hundredths of a second of CPU instead of a quarter (decisions/0077).

`python -m tests.zygote FD [MODULE …]` is that process, one for each process of pytest and for each set of
other modules that programs need. It forks for every request at the socket FD. The child is a child of
pytest, as after an ordinary start, and has the directory, environment, arguments and files that the request
names, and nothing else of the zygote but its modules.
Programs that are about the start itself, an import or their command line have the mark `real_start`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import types
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
REAL: Final = subprocess.Popen
_AT_START: Final = (
    "PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC", "EOSDB_PORTABLE", "EOSDB_DISK_ORDERS",
)  # fmt: skip
"""Beginnings of variables that are read before the program runs: another value needs a real start."""
OURS: Final = ("benchmarks", "eosdb", "tests")
"""Packages of which a program may be, after `-m`."""
_PRELOAD: Final = "LD_PRELOAD"
"""Each value has a zygote of its own, and so has what else is imported."""
_NO_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""For a zygote that imports numpy, pyarrow and deltalake, which would start threads."""
_CLONE_PARENT: Final = 0x8000
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_LEFT_OUT: Final = tuple(
    f"eosdb.{name}"
    for name in ("integrations", "migrations", "model.records.arrow_types", "spark_io", "testing")
)
"""Modules that few programs need, that run when they are imported, or that start threads."""
_LONGEST: Final = 1 << 20
"""Bytes of a request."""

_IMPORTED: list[str] = []
"""In the zygote: the modules that it had before it forked."""

enabled = True
"""Whether the current test may have forked programs."""
imported: tuple[str, ...] = ()
"""What the current test wants imported beside eosdb, by the mark `forked_with`."""
_zygotes: dict[tuple[str, ...], socket.socket] = {}
"""By what is preloaded, and what else is imported."""
_owner = 0


class Popen(subprocess.Popen[Any]):
    """Forks `[sys.executable, …]` from the zygote, and starts everything else."""

    def _execute_child(self, *arguments: Any) -> None:
        (
            args, executable, preexec, close_fds, pass_fds, cwd, env, _, _, shell,
            stdin, to_stdin, from_stdout, stdout, from_stderr, stderr,
            _, gid, gids, uid, umask, new_session, process_group,
        ) = arguments[:23]  # fmt: skip
        program = None
        if not (shell or executable or preexec or pass_fds or gids or not close_fds) and (
            (gid, uid, umask, process_group) == (None, None, -1, -1) and enabled
        ):
            program = _program(args, env)
        if program is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        sys.audit("subprocess.Popen", program[0], args, cwd, env)  # tests/marks.py hears it.
        files = [own if own != -1 else i for i, own in enumerate((stdin, stdout, stderr))]
        request = {
            "program": program,
            "cwd": os.fspath(cwd) if cwd else os.getcwd(),
            "env": {
                os.fsdecode(k): os.fsdecode(v)
                for k, v in (os.environ if env is None else env).items()
            },
            "session": bool(new_session),
        }
        self.pid = _forked(request, files)
        self._child_created = True
        pipes = stdin, to_stdin, from_stdout, stdout, from_stderr, stderr
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _program(args: Any, env: Any) -> list[str] | None:
    """The arguments behind the interpreter; None if the program needs a start of its own."""
    if (
        not isinstance(args, list | tuple)
        or sys.platform != "linux"
        or os.uname().machine not in _CLONE
    ):
        return None
    words = [os.fsdecode(word) for word in args]
    if words[:1] != [sys.executable] or _is_of_the_product():
        return None
    rest = words[3:] if words[1:3] == ["-W", "ignore"] else words[1:]
    rest = rest[1:] if rest[:1] == ["-P"] else rest
    of_eosdb = rest[:1] == ["-m"] and rest[1].partition(".")[0] in OURS
    if not (of_eosdb or rest[:1] == ["-c"] or (rest and rest[0].endswith(".py"))):
        return None
    if env is not None and _at_start(env) != _at_start(os.environ):
        return None
    return words[1:]


def _is_of_the_product() -> bool:
    """Whether eosdb itself starts the program: it then does what it does for a user."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, subprocess.__file__):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "eosdb"


def _texts(env: Any) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}


def _at_start(env: Any) -> dict[str, str]:
    """What is read before the program runs. The zygote has the checkout in its path anyway."""
    read = {name: value for name, value in _texts(env).items() if name.startswith(_AT_START)}
    if read.get("PYTHONPATH") == str(ROOT):
        del read["PYTHONPATH"]
    read.pop(_PRELOAD, None)
    return read


def _forked(request: dict[str, Any], files: list[int]) -> int:
    """Return the process id."""
    global _owner
    if _owner != os.getpid():
        _zygotes.clear()
        _owner = os.getpid()
    preload = request["env"].get(_PRELOAD, "")
    key = preload, *imported
    if key not in _zygotes:
        quiet = _NO_THREADS if imported else {}
        _zygotes[key] = _started({**os.environ, **quiet, _PRELOAD: preload}, imported)
    zygote = _zygotes[key]
    try:
        socket.send_fds(zygote, [json.dumps(request).encode()], files)
        answer = zygote.recv(1_000)
    except OSError:
        answer = b""
    if not answer:
        raise RuntimeError("the zygote has died; see its message above")
    return int(answer)


def _started(env: dict[str, str], modules: Iterable[str]) -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = REAL(
            [sys.executable, "-m", "tests.zygote", str(its.fileno()), *modules],
            cwd=ROOT, env=env, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
    process.returncode = 0  # It is nobody's to wait for: it ends with pytest.
    return ours


def stop() -> None:
    """End the zygotes of this process."""
    if _owner == os.getpid():
        for zygote in _zygotes.values():
            zygote.close()
        _zygotes.clear()


# From here on: the zygote.


class Child(BaseException):
    """Leaves the zygote's loop in a child, so that the program runs at the top and ends as usual."""

    def __init__(self, program: list[str]) -> None:
        self.program = program


def import_everything(others: Iterable[str]) -> None:
    """Import what programs of the suite are made of; nothing of it may start a thread or open a file."""
    import eosdb

    for name in others:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(eosdb.__path__, "eosdb."):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
            with suppress(ImportError):  # Of an extra that is not installed.
                importlib.import_module(module.name)
    threads, files = os.listdir("/proc/self/task"), _open_files()
    if len(threads) > 1 or files:
        raise SystemExit(f"the zygote has {len(threads)} threads and these files open: {files}")


def _open_files() -> list[str]:
    """What is open beside the standard files and sockets."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}")
            if int(number) > 2 and not name.startswith(("socket:", "/proc/")):
                names.append(name)
    return names


def serve(its: socket.socket) -> None:
    """Fork for each request, until pytest has gone."""
    clone = ctypes.PyDLL(None).syscall
    tid = _thread_id()
    while True:
        data, files, _, _ = socket.recv_fds(its, _LONGEST, 3)
        if not data:
            return
        ctypes.pythonapi.PyOS_BeforeFork()
        # As the C library's `fork`, but the child is a child of pytest.
        pid = clone(_CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            tid.value = os.getpid()
            ctypes.pythonapi.PyOS_AfterFork_Child()
            raise Child(_become(json.loads(data), files))
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        for file in files:
            os.close(file)
        its.send(str(pid).encode())


def _thread_id() -> ctypes.c_int:
    """Where the C library keeps the id of this thread, which its own fork would change."""
    get = ctypes.CDLL(None).pthread_self
    get.restype = ctypes.c_size_t
    begin: int = get()
    for offset in range(0, 2_048, 4):
        found = ctypes.c_int.from_address(begin + offset)
        if found.value == os.getpid():
            return found
    raise SystemExit("this C library keeps the thread's id elsewhere")


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """Be a new process but for the modules; return the program."""
    for to, file in enumerate(files):
        os.dup2(file, to)
    os.closerange(3, 1_024)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _open_stream(number, name)
    from eosdb.model import failpoints
    from eosdb.native import accelerator

    failpoints._target = failpoints._armed()  # It is read when the module is imported.
    accelerator.rows.cache_clear()
    program: list[str] = request["program"]
    return program


def _open_stream(number: int, name: str) -> None:
    """Open a standard stream as the interpreter does: for what the file is now."""
    old = getattr(sys, name)
    raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
    lines = os.isatty(number) or name == "stderr"
    new = io.TextIOWrapper(
        raw
        if old.write_through
        else io.BufferedReader(raw)
        if name == "stdin"
        else io.BufferedWriter(raw),
        old.encoding,
        old.errors,
        line_buffering=lines and not old.write_through,
        write_through=old.write_through,
    )
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def run(program: list[str]) -> None:
    """Run the program as the interpreter would."""
    if program[:2] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
        program = program[2:]
    is_safe = program[0] == "-P"
    how, *rest = program[is_safe:]
    sys.path[0] = (
        str(Path(how).resolve().parent)
        if how.endswith(".py")
        else ""
        if how == "-c"
        else os.getcwd()
    )
    if is_safe:
        del sys.path[0]
    main = types.ModuleType("__main__")
    if how == "-m":
        sys.argv = rest
        del sys.modules["__main__"]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    if how == "-c":
        sys.argv = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.argv = [how, *rest]
        main.__file__ = how
        code = compile(Path(how).read_bytes(), how, "exec")
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _keep() -> None:
    """Have the interpreter leave the zygote's modules as they are when it ends: to clear them takes longer
    than most programs. It clears those of the program."""
    for name in _IMPORTED:
        if (module := sys.modules.pop(name, None)) is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))


def _report(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Print an error without the zygote's frames."""
    shown = trace
    while trace is not None:
        own = trace.tb_frame.f_code.co_filename == __file__
        trace = trace.tb_next
        shown = trace if own else shown
    sys.__excepthook__(kind, error.with_traceback(shown), shown)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # It ends with its socket.
    import_everything(sys.argv[2:])
    _IMPORTED = [name for name in sys.modules if name not in ("sys", "builtins", "__main__")]
    gc.collect()
    gc.freeze()
    inherited = socket.socket(fileno=int(sys.argv[1]))
    todo: list[str] = []
    try:
        serve(inherited)
    except Child as child:
        todo = child.program
        inherited.detach()
    if todo:
        sys.excepthook = _report
        atexit.register(_keep)
        run(todo)
