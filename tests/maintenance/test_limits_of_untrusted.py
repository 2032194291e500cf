"""What the system allows the process that checks a file from elsewhere: memory, time, files, no core."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

_LIMITS = """
import os, resource, sys
from eosdb.maintenance import untrusted

def look(path, tell):
    limits = [resource.getrlimit(which) for which in (
        resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE
    )]
    spilled = os.open(path + "-spilled", os.O_CREAT | os.O_RDWR)
    try:
        os.pwrite(spilled, b"x", limits[2][0])
    except OSError as error:
        limits.append(error.strerror)
    return untrusted.Report(untrusted.Verdict.SOUND, tuple(map(str, limits)))

untrusted._checked = look
untrusted.main(sys.argv[1], 1 << 30, 77)
"""
MIB = 1024 * 1024


def test_memory_time_files_and_cores_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(bytes(10_000))
    done = ended(
        [sys.executable, "-c", _LIMITS, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    size = 4 * 10_000 + 64 * MIB
    limits = [(1 << 30, (1 << 30) + 1), (77, 78), (size, size + 1), (0, 0)]
    assert told["problems"] == [*map(str, limits), "File too large"]
