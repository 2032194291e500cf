"""What may have to wait, and waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.wire.peer import PATIENCE_S


class Waiting:
    """A call in a thread of its own, which may have to wait."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(call()), daemon=True)
        self._thread.start()

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    def answer(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert self._answers, "no answer has come"
        return self._answers[0]
