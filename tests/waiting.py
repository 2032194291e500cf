"""Waiting for a condition, however long a crowded machine takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 120.0


def eventually(
    is_so: Callable[[], object], found: Callable[[], object] = lambda: "it has not become true"
) -> None:
    """Wait until it is true. Otherwise the test fails, and says what was `found`."""
    tick = threading.Event()
    for _ in range(int(PATIENCE_S * 100)):
        if is_so():
            return
        tick.wait(0.01)
    raise AssertionError(found())
