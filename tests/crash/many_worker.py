"""The process that is killed while it has many records in hand: `python -m tests.crash.many_worker FILE
workers|concurrency|batch`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any, Final

import eosdb
import eosdb.aio

SETTINGS: Final[dict[str, Any]] = {
    "group_id": "g",
    "transaction_size": 20,
    "transaction_interval_ms": 20,
    "max_attempts": 3,  # Two before the delay: what fails once keeps its place.
    "retry_backoff_ms": 5,
    "retry_delays_ms": (20,),
    "dead_letter_topic": "dead",
}
MODES: Final[dict[str, dict[str, Any]]] = {
    "workers": {"workers": 4},
    "concurrency": {"concurrency": 4},
    "batch": {"batch": True, "max_batch": 7},
}
_failed = set[bytes]()


def is_bad(value: bytes) -> bool:
    return int(value) % 10 == 7


def pause_s(value: bytes) -> float:
    """How long a record takes. One in ten fails always, and some of the others once."""
    if is_bad(value) or (value not in _failed and random.random() < 0.05):
        _failed.add(value)
        raise ValueError("no")
    return random.choice((0, 0.001, 0.004))


def one(record: eosdb.ConsumerRecord) -> bytes:
    value: bytes = record.value
    time.sleep(pause_s(value))
    return value


async def awaited(record: eosdb.ConsumerRecord) -> bytes:
    value: bytes = record.value
    await asyncio.sleep(pause_s(value))
    return value


def many(records: list[eosdb.ConsumerRecord]) -> list[eosdb.ProducerRecord]:
    """Names the guilty one now and then."""
    for index, record in enumerate(records):
        try:
            time.sleep(pause_s(record.value))
        except ValueError as error:
            raise eosdb.BatchFailed(index, error) if random.random() < 0.5 else error from None
    return [eosdb.ProducerRecord(value=record.value, key=record.key) for record in records]


async def in_a_loop(path: str, **settings: Any) -> None:
    async with eosdb.aio.connect(path, durability="normal") as db:
        await db.process("in", awaited, "out", **settings)


def run(path: str, mode: str, until_idle_ms: int | None = None) -> None:
    settings = {**SETTINGS, **MODES[mode], "until_idle_ms": until_idle_ms}
    if mode == "concurrency":
        asyncio.run(in_a_loop(path, **settings))
        return
    with eosdb.connect(path, durability="normal") as db:
        eosdb.process(db, "in", many if mode == "batch" else one, "out", **settings)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2])
