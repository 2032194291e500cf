"""`eosdb.aio`: transactions, blocks, and records without transactions, cancelled at any instant."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Coroutine
from typing import Any, Final

import eosdb
import eosdb.aio
from eosdb import OffsetAndMetadata, RecordMetadata, TopicPartition
from eosdb.errors import Outcome
from tests.trials.hunts.ledger import Operation, Told
from tests.trials.hunts.programs.working import CONFIG, TOPIC, BrokenError, Setting, Work, work

_LATEST_S: Final = 0.02
"""When a task is cancelled."""
_OUTCOMES: Final[dict[str, Outcome]] = {
    "committed": "written",
    "aborted": "not written",
    "never started": "not written",
}


class InLoop:
    """A producer in an event loop that runs as long as an operation takes."""

    is_atomic: bool
    transactional_id: str | None = None

    def __init__(self, setting: Setting) -> None:
        self._rng = random.Random(setting.ledger.life)
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self._open(setting))
        except BaseException:
            self._runner.close()
            raise

    async def _open(self, setting: Setting) -> None:
        self._db = await eosdb.aio.connect(setting.path, config=CONFIG)
        try:
            self._producer = self._db.producer(transactional_id=self.transactional_id)
            await self._producer.start()
        except BaseException:
            await self._db.close()
            raise

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        return self._runner.run(self._store(operation, values))

    async def _store(self, operation: Operation, values: list[bytes]) -> Told:
        raise NotImplementedError

    async def _is_cancelled(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Whether it was: every other time it is tried at some instant. Raises its error."""
        task = asyncio.create_task(coroutine)
        if self._rng.random() < 0.5:
            await asyncio.wait({task}, timeout=self._rng.random() * _LATEST_S)
            task.cancel()
        await asyncio.wait({task})
        return task.cancelled() or task.result() is not None

    def close(self) -> None:
        with contextlib.suppress(eosdb.EosdbError):
            self._runner.run(self._db.close())
        self._runner.close()


class Blocks(InLoop):
    """Transactions and blocks of `db.begin()` in turns."""

    is_atomic = True
    transactional_id = "aio"

    async def _store(self, operation: Operation, values: list[bytes]) -> Told:
        self._token: eosdb.TransactionToken | None = None
        self._is_ending = False
        is_block = operation.number % 2
        try:
            stored = (self._block if is_block else self._transaction)(operation, values)
            if await self._is_cancelled(stored):
                return await self._outcome(is_block=bool(is_block))
        except eosdb.EosdbError as error:
            raise BrokenError(error.outcome if self._is_ending else "not written") from error
        return "written"

    async def _outcome(self, *, is_block: bool) -> Outcome:
        """Of what was cancelled: it is decided when the cancellation arrives."""
        if not self._is_ending:
            return "not written"
        if is_block:
            return "unknown"
        assert self._token is not None
        try:
            outcome = await self._db.outcome(self._token)
        except eosdb.EosdbError as error:
            raise BrokenError("unknown") from error
        if (
            outcome not in _OUTCOMES
        ):  # It is open: the disk refused its end, which was cancelled, too.
            raise BrokenError("unknown")
        return _OUTCOMES[outcome]

    async def _transaction(self, operation: Operation, values: list[bytes]) -> None:
        async with self._producer.transaction() as self._token:
            for place, value in zip(operation.places, values, strict=True):
                await self._producer.send(place.topic, value, partition=place.partition)
            await self._producer.send_offsets_to_transaction(_at(operation), "places")
            self._is_ending = True

    async def _block(self, operation: Operation, values: list[bytes]) -> None:
        async with self._db.begin() as tx:
            for place, value in zip(operation.places, values, strict=True):
                await tx.publish(place.topic, value, partition=place.partition)
            await tx.commit_offsets("places", _at(operation))
            self._is_ending = True


class Records(InLoop):
    """Without transactions: what was queued is written all the same, and its future tells."""

    is_atomic = False

    async def _store(self, operation: Operation, values: list[bytes]) -> Told:
        self._futures: list[asyncio.Future[RecordMetadata]] = []
        try:
            await self._is_cancelled(self._send(operation, values))
        except eosdb.EosdbError as error:
            raise BrokenError("unknown") from error
        told: list[Outcome] = [await _told(future) for future in self._futures]
        rest = len(values) - len(told)
        # The call that was cancelled may have queued its record.
        lacking: list[Outcome] = ["unknown"]
        lacking += ["not written"] * rest
        told += lacking[:rest]
        if {*told} != {"written"}:
            raise BrokenError(told)
        return told

    async def _send(self, operation: Operation, values: list[bytes]) -> None:
        for place, value in zip(operation.places, values, strict=True):
            self._futures.append(
                await self._producer.send(place.topic, value, partition=place.partition)
            )


async def _told(future: asyncio.Future[RecordMetadata]) -> Outcome:
    try:
        await future
    except eosdb.EosdbError as error:
        return error.outcome
    return "written"


def _at(operation: Operation) -> dict[TopicPartition, OffsetAndMetadata | int]:
    return {TopicPartition(TOPIC, 0): operation.number}


if __name__ == "__main__":
    face: type[Work] = Records if sys.argv[2] == "aio-records" else Blocks
    work(face, (eosdb.EosdbError,))
