"""Runs a scenario in an event loop of its own that complains about everything it can complain about."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from time import monotonic

import eosdb.aio
from eosdb.aio import AsyncDatabase

_PATIENCE_S = 60.0


class Complaints(logging.Handler):
    """What the logger `asyncio` has to say, slow callbacks apart: machines are crowded."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("Executing "):
            self.found.append(record.getMessage())


def threads() -> set[threading.Thread]:
    """Our threads that run."""
    return {t for t in threading.enumerate() if t.name.startswith("eosdb")}


def no_thread_is_left(but: Collection[threading.Thread] = ()) -> None:
    """Waits for the last ones: a thread ends a little after its last answer. `but`: those of others."""
    until = monotonic() + _PATIENCE_S
    while (left := threads() - set(but)) and monotonic() < until:
        for thread in left:
            thread.join(timeout=0.1)
    assert not left


def run(
    path: Path, scenario: Callable[[AsyncDatabase], Awaitable[None]], *, partitions: int = 1
) -> None:
    """The scenario, with a topic `t`; afterwards nothing is left and nothing has been complained about."""

    async def main() -> None:
        async with asyncio.timeout(_PATIENCE_S), eosdb.aio.connect(path / "t.db") as db:
            await db.admin.create_topic("t", partitions)
            await scenario(db)

    run_alone(main)


def run_alone(main: Callable[[], Awaitable[None]]) -> None:
    async def to_run() -> None:
        await main()

    complaints = Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    try:
        asyncio.run(to_run(), debug=True)
        gc.collect()
        no_thread_is_left()
    finally:
        logger.removeHandler(complaints)
    assert not complaints.found, complaints.found


async def values(db: AsyncDatabase, topic: str = "t") -> list[str]:
    """The values of the topic's committed records, by offset."""
    found = await db.query(
        "SELECT value FROM committed_records WHERE topic = ? ORDER BY offset", [topic]
    )
    return [bytes(value).decode() for (value,) in found.rows]


async def filled(db: AsyncDatabase, count: int, partition: int = 0) -> None:
    """Puts the numbers below `count` into the topic `t`."""
    async with db.producer() as producer:
        await producer.send_many("t", map(str, range(count)), partition=partition)
