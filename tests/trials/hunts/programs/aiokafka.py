"""aiokafka's transactional producer against a served file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.trials.hunts import meanings
from tests.trials.hunts.ledger import Operation, Told
from tests.trials.hunts.programs.working import BrokenError, Setting, work

_PATIENCE_S = 15.0
_Result = TypeVar("_Result")


class Transactions:
    """Of one producer, on a loop of its own which runs while an operation does. Every seventh is aborted;
    an error, or a call that takes too long and is cancelled, makes the producer anew."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        self._loop = asyncio.new_event_loop()
        self._run(self._begin(setting))

    async def _begin(self, setting: Setting) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=setting.address,
            transactional_id=setting.name,
            transaction_timeout_ms=10_000,
            request_timeout_ms=5_000,
        )
        try:
            await self._producer.start()
        except BaseException:
            await self._producer.stop()
            raise

    def _run(self, call: Awaitable[_Result]) -> _Result:
        async def in_time() -> _Result:
            return await asyncio.wait_for(call, _PATIENCE_S)

        return self._loop.run_until_complete(in_time())

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        return self._run(self._store(operation, values))

    async def _store(self, operation: Operation, values: list[bytes]) -> Told:
        producer, is_ending = self._producer, False
        try:
            await producer.begin_transaction()
            for place, value in zip(operation.places, values, strict=True):
                await producer.send(place.topic, value, partition=place.partition)
            if operation.number % 7 == 0:
                await producer.abort_transaction()
                return "not written"
            is_ending = True
            await producer.commit_transaction()
        except (KafkaError, asyncio.CancelledError) as error:
            raise BrokenError(
                meanings.of_aiokafka(error, committing=True) if is_ending else "not written"
            ) from error
        return "written"

    def close(self) -> None:
        with contextlib.suppress(KafkaError, TimeoutError):
            self._run(self._producer.stop())
        self._loop.close()


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    work(Transactions, (KafkaError, OSError, TimeoutError))
