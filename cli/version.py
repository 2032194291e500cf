"""What `eosdb --version` says: the version, the commit, and what this machine lets eosdb use."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Final

import eosdb
from eosdb.native import accelerator
from eosdb.system.road import road

DESCRIBE: Final = "describe --always --abbrev=12 --dirty --exclude=*"


def line() -> str:
    """The version with its commit, and whether the accelerator and the portable locks are used."""
    made_of = f" (commit {found})" if (found := commit(Path(eosdb.__file__).parent)) else ""
    native = accelerator.road()
    is_used = "with the accelerator" if native is True else f"without the accelerator: {native}"
    portable = ", portable" if road.IS_PORTABLE else ""
    return f"eosdb, version {eosdb.__version__}{made_of}, {is_used}{portable}"


def commit(package: Path) -> str:
    """The commit of a package's folder: a build notes it in `commit.txt` (setup.py), a checkout has git.
    `-dirty` means that files have changed since. Empty if unknown. (decisions/0112)"""
    with contextlib.suppress(OSError):
        return (package / "commit.txt").read_text(encoding="ascii").strip()
    if not (package.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(package), *DESCRIBE.split()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
