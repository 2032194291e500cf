"""Examples are run as their readers run them: as programs, in a folder of their own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash.children import environment
from tests.programs import ended
from tests.tidy.tree import ROOT


def run(name: str, *arguments: str, folder: Path, **extra: str) -> str:
    """What the example printed; it must end well."""
    done = ended(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        cwd=folder,
        env=environment(**extra),
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
