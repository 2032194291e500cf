"""A time limit (Celery, RQ) is an exception of a signal handler. It ends the event loop as it is, and the
worker threads finish what they have begun."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
import eosdb.aio
from eosdb.aio import AsyncDatabase
from eosdb.store.readers import Readers
from eosdb.store.writing.timings import Timings
from tests.aio.running import no_thread_is_left
from tests.readers import committed_values
from tests.requests import TP
from tests.system.test_time_limits import error

__all__ = ["error"]


async def send(db: AsyncDatabase) -> None:
    async with db.producer() as producer:
        await producer.send_and_wait("t", b"1")


async def commit(db: AsyncDatabase) -> None:
    async with db.producer(transactional_id="x") as producer, producer.transaction():
        await producer.send("t", b"1")


async def block(db: AsyncDatabase) -> None:
    async with db.begin() as tx:
        await tx.publish("t", "1")


async def poll(db: AsyncDatabase) -> None:
    async with db.consumer("t", auto_offset_reset="earliest") as consumer:
        await consumer.getmany(timeout_ms=60_000)


async def nothing(record: eosdb.ConsumerRecord) -> None:
    pass


async def process(db: AsyncDatabase) -> None:
    await db.process("t", nothing, group_id="g")


CALLS = [
    (send, Timings, "committed"), (commit, Timings, "committed"), (block, Timings, "committed"),
    (poll, Readers, "read"), (process, Readers, "read"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "name"), CALLS)
def test_it_reaches_the_caller_of_the_loop_and_the_file_is_free(
    call: Callable[[AsyncDatabase], Awaitable[None]], kind: type, name: str,
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plain, main = getattr(kind, name), threading.main_thread().ident
    assert main is not None

    def interrupted(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        signal.pthread_kill(main, signal.SIGUSR1)
        return plain(*arguments, **named)

    async def loop() -> None:
        async with eosdb.aio.connect(tmp_path / "t.db") as db:
            await db.admin.create_topic("t")
            monkeypatch.setattr(kind, name, interrupted)
            await call(db)

    with pytest.raises(error):
        asyncio.run(loop())
    no_thread_is_left()
    with eosdb.connect(tmp_path / "t.db") as db:
        assert committed_values(db, TP) in ([], [b"1"])
        db.producer().send("t", b"after").result()
        assert committed_values(db, TP)[-1] == b"after"
        assert db.verify().ok
