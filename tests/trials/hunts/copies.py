"""Restores Litestream's replica of a file that is being written, and compares it with the file.

    python -m tests.trials.hunts.copies [--litestream PROGRAM] [--rounds 30] [--seed 1]

Litestream (`EOSDB_LITESTREAM`, or on the PATH) replicates to a folder while `copies_writer` writes at full
speed. At random instants the writer, Litestream, both or nobody is killed with SIGKILL, and the replica is
restored: `verify` must pass, and every event and record of the copy must be the file's, in the same place,
with none left out before the copy's end. What the copy lacks is told in events and seconds. Whoever was
killed begins again on the same files.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import eosdb
from eosdb.errors import EosdbError
from tests.programs import ended

_VICTIMS = ("writer", "litestream", "both", "nobody")
_TOO_LONG_S = 120
_NEWEST = "SELECT position, timestamp FROM journal ORDER BY position DESC LIMIT 1"
# Row by row, both ways: the copy holds what the file holds up to its end, and nothing else.
_DIFFERENT = """
SELECT count(*) FROM (SELECT * FROM copy.{table} EXCEPT SELECT * FROM {table} WHERE position <= :end)
UNION ALL
SELECT count(*) FROM (SELECT * FROM {table} WHERE position <= :end EXCEPT SELECT * FROM copy.{table})
"""


class _Replica:
    """Litestream's program, and the file and folder that it is told of."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.path, self._folder = program, folder / "shop.db", folder
        self._config = folder / "litestream.yml"
        self._config.write_text(
            f"dbs:\n  - path: {self.path}\n    replicas:\n      - path: {folder}/replica\n"
        )

    def start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "litestream.log").open("ab") as log:
            command = [self.program, "replicate", "-config", str(self._config)]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def forget(self) -> None:
        """What Litestream knows of the file, so that it begins with a new snapshot."""
        shutil.rmtree(self._folder / f".{self.path.name}-litestream", ignore_errors=True)

    def restore(self, target: Path, *more: str) -> str:
        """What went wrong; empty when the copy is there."""
        command = [
            self.program, "restore", "-config", str(self._config), *more,
            "-o", str(target), str(self.path),
        ]  # fmt: skip
        done = ended(command)
        return "" if done.returncode == 0 else done.stderr[-300:]

    def log(self) -> str:
        return (self._folder / "litestream.log").read_text()


def _newest(path: Path) -> tuple[int, float]:
    """The position and the time (s) of the last event."""
    with closing(sqlite3.connect(path)) as connection:
        position, timestamp = connection.execute(_NEWEST).fetchone()
        return int(position), timestamp / 1000


def _differences(original: Path, copy: Path, end: int) -> list[str]:
    """What `verify` says of the copy, and where it is not the file's history up to its end."""
    try:
        return _found_different(original, copy, end)
    except (EosdbError, sqlite3.DatabaseError) as error:
        return [f"{type(error).__name__}: {error}"[:200]]


def _found_different(original: Path, copy: Path, end: int) -> list[str]:
    with eosdb.connect(copy, read_only=True) as db:
        found = list(db.verify().problems)
    with closing(sqlite3.connect(original)) as connection:
        connection.execute("ATTACH ? AS copy", (str(copy),))
        for table in ("eosdb_journal", "records"):
            rows = connection.execute(_DIFFERENT.format(table=table), {"end": end}).fetchall()
            if rows != [(0,), (0,)]:
                found.append(f"{table}: only in the copy and only in the file: {rows}")
    return found


def _wait_for_commits(notes: Path, wanted: int) -> None:
    """Until the writer has gone on by so many."""
    before = len(notes.read_bytes().splitlines()) if notes.exists() else 0
    end = time.monotonic() + _TOO_LONG_S
    while not notes.exists() or len(notes.read_bytes().splitlines()) < before + wanted:
        if time.monotonic() > end:
            raise SystemExit(f"the writer has not committed {wanted} times in {_TOO_LONG_S} s")
        time.sleep(0.1)


def _writer(path: Path, notes: Path, *, own_checkpoints: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.trials.hunts.copies_writer", str(path), str(notes)]
    if not own_checkpoints:
        command += ["--config", '{"external_checkpoints": true}']
    return subprocess.Popen(command)


def _kill(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in running:
        one.kill()
    for one in running:
        one.wait()


def _hunt(
    replica: _Replica,
    folder: Path,
    rounds: int,
    chance: random.Random,
    victims: Sequence[str],
    *,
    own_checkpoints: bool,
    goes_on: bool,
) -> list[str]:
    bad: list[str] = []
    lags: list[tuple[int, float]] = []
    writer, copier = (
        _writer(replica.path, folder / "notes", own_checkpoints=own_checkpoints),
        replica.start(),
    )
    try:
        for number in range(rounds):
            victim = victims[number % len(victims)]
            _wait_for_commits(folder / "notes", 50)
            time.sleep(chance.uniform(2, 5))
            killed = [writer] * (victim in ("writer", "both"))
            killed += [copier] * (victim in ("litestream", "both"))
            if writer in killed and not goes_on:
                _kill([writer, copier])
                replica.forget()
                writer = _writer(replica.path, folder / "notes", own_checkpoints=own_checkpoints)
                copier, killed = replica.start(), []
                _wait_for_commits(folder / "notes", 50)
                time.sleep(chance.uniform(2, 5))
            _kill(killed)
            position, now = _newest(replica.path)
            copy = folder / f"copy-{number}.db"
            problem = replica.restore(copy)
            if problem:
                found = [f"it cannot be restored: {problem}"]
            else:
                try:
                    end, then = _newest(copy)
                except sqlite3.DatabaseError as error:
                    found = [str(error)]
                else:
                    lags.append((max(position - end, 0), max(now - then, 0.0)))
                    found = _differences(replica.path, copy, end)
                    print(f"{number}: {lags[-1][0]} events, {lags[-1][1]:.2f} s behind")
            print(f"{number}: {victim} killed; {found or 'ok'}", flush=True)
            bad += [f"{number} ({victim} killed): {one}" for one in found]
            for leftover in folder.glob("copy-*"):
                leftover.unlink()
            if writer in killed:
                writer = _writer(replica.path, folder / "notes", own_checkpoints=own_checkpoints)
            if copier in killed:
                copier = replica.start()
        bad += _at_a_time(replica, folder)
    finally:
        _kill([writer, copier])
    if lags:
        print(f"at most {max(lags)[0]} events and {max(s for _, s in lags):.2f} s behind")
    for said in ("new generation", "another process", "salt reset", "ERROR", "database is locked"):
        print(f"Litestream's log: {replica.log().count(said)} times {said!r}")
    return bad


def _at_a_time(replica: _Replica, folder: Path) -> list[str]:
    """The file as it was at a time in the past."""
    wanted = time.time() - 5
    time.sleep(3)
    text = datetime.fromtimestamp(wanted, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    copy = folder / "then.db"
    problem = replica.restore(copy, "-timestamp", text)
    if problem:
        return [f"it cannot be restored as of {text}: {problem}"]
    try:
        end, then = _newest(copy)
    except sqlite3.DatabaseError as error:
        return [f"as of {text}: {error}"]
    print(f"as of {text}: its last event is {wanted - then:.2f} s older than that")
    return _differences(replica.path, copy, end)


def main() -> None:
    """Raises SystemExit with what was found to be wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litestream", default=os.environ.get("EOSDB_LITESTREAM", "litestream"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", default=",".join(_VICTIMS), help="who is killed in turn")
    parser.add_argument(
        "--own-checkpoints",
        action="store_true",
        help="without external_checkpoints, as it must not be",
    )
    parser.add_argument(
        "--goes-on",
        action="store_true",
        help="with the same replica after the writer was killed, as it must not",
    )
    asked = parser.parse_args()
    program = shutil.which(asked.litestream)
    if program is None:
        raise SystemExit(
            f"{asked.litestream} is not there; `go install "
            "github.com/benbjohnson/litestream/cmd/litestream@v0.5.18` makes it"
        )
    with tempfile.TemporaryDirectory() as name:
        bad = _hunt(
            _Replica(program, Path(name)), Path(name), asked.rounds, random.Random(asked.seed),
            asked.victims.split(","), own_checkpoints=asked.own_checkpoints,
            goes_on=asked.goes_on,
        )  # fmt: skip
    if bad:
        raise SystemExit("\n".join(bad))


if __name__ == "__main__":
    main()
