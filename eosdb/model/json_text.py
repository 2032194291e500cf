"""JSON that may have been written by somebody else, or be damaged."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str | bytes) -> Any:
    """What it says. Raises ValueError, also for what is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None
