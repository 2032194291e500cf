"""Starting what a run needs: a server in a folder of its own, and children that produce and work."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.why_not.contract import Driver, Server, Verdict, judge, number_of
from benchmarks.why_not.systems import driver

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Place:
    """One system, served."""

    name: str
    server: Server
    mark: str
    """In every run's name: a broker that was there before keeps what earlier runs have left."""

    def driver(self, run: str) -> Driver:
        return driver(self.name)(self.server.address, f"{run}-{self.mark}")

    def command(self, action: str, run: str, numbers: Mapping[str, float]) -> list[str]:
        pids = {f"pid{index}": pid for index, pid in enumerate(self.server.pids)}
        words = [f"{name}={number}" for name, number in {**numbers, **pids}.items()]
        module = "benchmarks.why_not.child"
        return [
            sys.executable,
            "-m",
            module,
            action,
            self.name,
            self.server.address,
            f"{run}-{self.mark}",
            *words,
        ]

    def ask(self, action: str, run: str, **numbers: float) -> dict[str, float]:
        """What the child has measured; nothing for `create`."""
        done = subprocess.run(
            self.command(action, run, numbers), cwd=ROOT, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{self.name}, {action}: {done.stderr[-1000:]}")
        found = done.stdout.strip().splitlines()
        return json.loads(found[-1]) if found else {}

    def start(self, run: str, **numbers: float) -> subprocess.Popen[str]:
        """A worker that says on its output when it has its first message."""
        return subprocess.Popen(
            self.command("life", run, numbers), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def verdict(self, run: str, sent: int) -> Verdict:
        return judge(sent, [number_of(value) for value in self.driver(run).results()])


@contextmanager
def served(name: str) -> Iterator[Place]:
    """A system with what has to run for it, in a new folder."""
    with TemporaryDirectory(prefix="why-not-") as folder:
        Path(folder).chmod(0o755)
        with driver(name).serve(Path(folder)) as server:
            yield Place(name, server, uuid.uuid4().hex[:8])


def said(worker: subprocess.Popen[str], word: str) -> bool:
    """Wait until the worker says so; False when it has ended without."""
    assert worker.stdout is not None
    return any(line.strip() == word for line in worker.stdout)
