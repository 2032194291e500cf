"""The thread of a client lives as long as its client."""

from __future__ import annotations

import threading

from eosdb.client.background import Background


class Client:
    """Whose first step finds no memory."""

    def __init__(self) -> None:
        self.steps = 0
        self.is_done = threading.Event()

    def step(self) -> int | None:
        self.steps += 1
        if self.steps == 1:
            raise MemoryError
        self.is_done.set()
        return None


def test_a_step_without_memory_is_not_the_last() -> None:
    client = Client()
    background = Background("test", client.step)
    assert client.is_done.wait(60)
    background.stop()
