"""Servers for the time of a run: started in a folder of its own, ended with it; what they use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PATIENCE_S: Final = 60


@contextmanager
def running(
    command: Sequence[str],
    *,
    log: Path,
    port: int | Path,
    user: str | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[int]:
    """A server's process id, once it listens on its port (or its socket's path)."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, user=user)
        try:
            wait_for(port, process, log)
            yield process.pid
        finally:
            process.send_signal(end)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


def wait_for(port: int | Path, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args!r} does not answer: {log.read_text()[-500:]}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int | Path) -> bool:
    at_path = isinstance(port, Path)
    with socket.socket(socket.AF_UNIX if at_path else socket.AF_INET) as probe:
        try:
            probe.connect(str(port) if at_path else ("127.0.0.1", port))
        except OSError:
            return False
    return True


def tree(root: int, parents: Mapping[int, int]) -> set[int]:
    """The process and all its descendants."""
    found, size = {root}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def cpu_s(roots: Sequence[int]) -> float:
    """CPU time of the processes and their descendants so far, ended ones included."""
    ticks = sum(sum(map(int, _stat(pid)[11:15])) for pid in _members(roots))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(roots: Sequence[int]) -> float:
    """Memory in use; pages that several of them share are counted once."""
    return (
        sum(_kilobytes(Path("/proc", str(pid), "smaps_rollup"), "Pss:") for pid in _members(roots))
        / 1024
    )


def peak_mb(pid: int | str = "self") -> float:
    return _kilobytes(Path("/proc", str(pid), "status"), "VmHWM:") / 1024


def disk_bytes(folder: Path) -> int:
    """What the folder's files take on disk."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def _members(roots: Sequence[int]) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*") if roots else ():
        if stat := _stat(int(folder.name)):
            parents[int(folder.name)] = int(stat[1])
    return {pid for root in roots for pid in tree(root, parents)}


def _stat(pid: int) -> list[str]:
    """The fields behind the name; none when the process has ended."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def _kilobytes(file: Path, label: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(label))
