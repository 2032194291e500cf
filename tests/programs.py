"""Programs that a test runs to their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any


def ended(
    command: str | Sequence[str | os.PathLike[str]], **options: Any
) -> subprocess.CompletedProcess[str]:
    """What the program said until it ended, with whatever exit status. The options are subprocess.run's."""
    settings = {"capture_output": True, "text": True, "check": False} | options
    return subprocess.run(command, **settings)
