"""Between a Kafka client and the server: connections cut, answers lost or late, requests twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.trials.hunts import proxy as api
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.faults.fault import Fault
from tests.trials.hunts.proxy import Proxy
from tests.trials.hunts.world import World

_PATIENCE_S: Final = 8.0
_STORING: Final = (
    api.PRODUCE, api.OFFSET_COMMIT, api.ADD_PARTITIONS_TO_TXN, api.ADD_OFFSETS_TO_TXN, api.END_TXN,
    api.TXN_OFFSET_COMMIT,
)  # fmt: skip
_Order = Callable[[Proxy, World], None]


class Between(Fault):
    """Ordered from the proxy, which counts what has happened."""

    needs = frozenset({Need.CONNECTION, Need.SERVER})

    def __init__(
        self, name: str, counted: str, summary: str, order: _Order, seconds: float
    ) -> None:
        self.name, self.summary = name, summary
        self._counted, self._order, self._seconds = counted, order, seconds

    def strike(self, world: World, actor: Actor) -> bool:
        proxy = world.proxy
        assert proxy is not None
        before = proxy.counts[self._counted]
        self._order(proxy, world)
        deadline = time.monotonic() + _PATIENCE_S
        while proxy.counts[self._counted] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(world.rng.random() * self._seconds)
        proxy.clear()
        return proxy.counts[self._counted] > before


def _storing(proxy: Proxy, world: World) -> tuple[int, ...]:
    """The APIs that store and that the actor uses, or half of the times one of them."""
    used = tuple(key for key in _STORING if key in proxy.seen) or _STORING
    return world.rng.choice((used, (world.rng.choice(used),)))


FAULTS: Final[list[Fault]] = [
    Between(
        "cut-request", "cut", "the connection is reset at the n-th byte of the requests",
        lambda proxy, world: proxy.cut(world.rng.randrange(3_000), "requests"), 0,
    ),
    Between(
        "cut-answer", "cut", "the connection is reset at the n-th byte of the answers",
        lambda proxy, world: proxy.cut(world.rng.randrange(1_000), "answers"), 0,
    ),
    Between(
        "lost-answer", "lost", "a writing request is carried out, and its answer is lost",
        lambda proxy, world: proxy.lose_answer(_storing(proxy, world)), 0,
    ),
    Between(
        "late-answers", "delayed", "every answer is late, by 10 ms to 3 s",
        lambda proxy, world: proxy.delay_answers(world.rng.choice((10, 200, 3_000))), 1,
    ),
    Between(
        "twice", "duplicated", "a writing request arrives twice, on two connections",
        lambda proxy, world: proxy.duplicate(_storing(proxy, world)), 0,
    ),
    Between(
        "unreachable", "refused", "the server cannot be reached for a while",
        lambda proxy, _: proxy.refuse(), 2,
    ),
]  # fmt: skip
