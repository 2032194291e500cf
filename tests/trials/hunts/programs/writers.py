"""Writers of the library, by the names of their actors; each other name (the feeder's) is a producer."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import freezegun

import eosdb
from eosdb import OffsetAndMetadata, ProducerRecord, Record, SentRecords, TopicPartition
from eosdb.errors import Outcome
from tests.trials.hunts.ledger import Ledgers, Operation, Told
from tests.trials.hunts.programs.working import (
    CONFIG,
    FILE,
    SIZES,
    TOPIC,
    BrokenError,
    Setting,
    Work,
    work,
)

TABLE: Final = "own_rows"
"""Of an actor with a table of its own: the values of its messages, and their offsets."""
_OWN_TABLE: Final = f"CREATE TABLE IF NOT EXISTS {TABLE} (value TEXT PRIMARY KEY, place INTEGER)"

DUE: Final = "due"
"""The header of a scheduled record with its due time."""
_HEADERS = [("n", b"7"), ("n", None)]
_LIMIT_S: Final = 0.02


class Opened:
    """Has the file open."""

    def __init__(self, setting: Setting) -> None:
        self._name = setting.name
        self._db = eosdb.connect(setting.path, config=CONFIG)
        try:
            self._begin(setting)
        except BaseException:
            self._db.close()
            raise

    def _begin(self, setting: Setting) -> None:
        """Make what writes. May raise EosdbError."""

    def close(self) -> None:
        with contextlib.suppress(eosdb.EosdbError):
            self._db.close()


class Producing(Opened):
    """Has a producer, too."""

    _producer: eosdb.Producer

    def close(self) -> None:
        with contextlib.suppress(eosdb.EosdbError):
            self._producer.close()
        super().close()


class Transactions(Producing):
    """Of one producer. Every seventh is aborted; an error makes client and database anew. Keys, headers and
    records without a value are for those that carry them on."""

    is_atomic = True

    def _begin(self, setting: Setting) -> None:
        self._producer = self._db.producer(transactional_id=setting.name)
        self._producer.init_transactions()

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        producer, is_ending = self._producer, False
        try:
            producer.begin_transaction()
            self._send(operation, values)
            if operation.number % 7 == 0:
                producer.abort_transaction()
                return "not written"
            is_ending = True
            producer.commit_transaction()
        except eosdb.EosdbError as error:
            # Before the end, nothing of a transaction is there to be read, and the next producer aborts it.
            raise BrokenError(error.outcome if is_ending else "not written") from error
        return "written"

    def _send(self, operation: Operation, values: list[bytes]) -> None:
        number = operation.number
        key, headers = f"k{number}" if number % 5 else None, _HEADERS[: number % 3]
        for place, value in zip(operation.places, values, strict=True):
            self._producer.send(
                place.topic, value, key=key, partition=place.partition, headers=headers
            )
        if number % 3 == 0:
            self._producer.send(TOPIC, None, key="gone", partition=0)
        at = {TopicPartition(TOPIC, 0): OffsetAndMetadata(number)}
        self._producer.send_offsets_to_transaction(at, "places")


class SendMany(Producing):
    """`send_many` of a producer without transactions, sometimes with more records than one commit takes.
    What is told to be not written changes nothing for the producer, which goes on."""

    is_atomic = False

    def _begin(self, setting: Setting) -> None:
        self._producer = self._db.producer()

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        records = (
            ProducerRecord(topic=place.topic, partition=place.partition, value=value)
            for place, value in zip(operation.places, values, strict=True)
        )
        sent = SentRecords()
        try:
            self._producer.send_many(TOPIC, records, sent=sent)
        except eosdb.EosdbError as error:
            failed = sent.failed
            is_settled = sent.stored + len(failed) == sent.accepted
            accepted: Outcome = "written" if is_settled else "unknown"
            told = [
                failed[i].outcome
                if i in failed
                else accepted
                if i < sent.accepted
                else "not written"
                for i in range(len(values))
            ]
            if error.outcome == "unknown" or self._producer.state == "FATAL_ERROR":
                raise BrokenError(told) from error
            return told
        return "written"


class Blocks(Opened):
    """`db.begin()` on an adopted file: a row of the user's own table for each message, in one commit. Every
    seventh block raises."""

    is_atomic = True

    def _begin(self, setting: Setting) -> None:
        with self._db.begin() as tx:
            tx.connection.exec_driver_sql(_OWN_TABLE)

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        try:
            with self._db.begin() as tx:
                for place, value in zip(operation.places, values, strict=True):
                    sent = tx.publish(place.topic, value, partition=place.partition)
                    row = value.decode().rstrip(), sent.offset
                    tx.connection.exec_driver_sql(f"INSERT INTO {TABLE} VALUES (?, ?)", row)
                at = {TopicPartition(TOPIC, 0): OffsetAndMetadata(operation.number)}
                tx.commit_offsets("places", at)
                self._meanwhile()
                if operation.number % 7 == 0:
                    raise _WantedError
        except _WantedError:
            return "not written"
        except eosdb.EosdbError as error:
            if error.outcome == "not written":
                return "not written"
            raise BrokenError(error.outcome) from error
        return "written"

    def _meanwhile(self) -> None:
        """What else is done in a block."""


class _WantedError(Exception):
    """Ends a block."""


class AppendOnce(Opened):
    """`append_once`: a batch of which it does not know the outcome is the first thing that it repeats, also
    in its next life. So nothing remains unknown but what it has in hand."""

    is_atomic = True

    def _begin(self, setting: Setting) -> None:
        self._ledgers = Ledgers(setting.folder)
        self._ledgers.refresh()
        own = [
            op for (life, _), op in self._ledgers.operations.items() if life.startswith(self._name)
        ]
        self._count = len(own)
        if own and own[-1].outcome == "unknown":
            values = [value.encode() for value in own[-1].values()]
            self._append(self._count, own[-1], values)
            setting.ledger.close(own[-1], "written")

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        self._count += 1
        try:
            self._append(self._count, operation, values)
        except eosdb.EosdbError as error:
            raise BrokenError(error.outcome) from error
        return "written"

    def _append(self, batch_id: int, operation: Operation, values: list[bytes]) -> None:
        batches: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for place, value in zip(operation.places, values, strict=True):
            batches[TopicPartition(*place)].append(Record(value=value))
        self._db.append_once(self._name, batch_id, batches)


def _later() -> tuple[int, list[tuple[str, bytes]]]:
    """When a record is due, a moment from now, and a header that says so."""
    due = time.time_ns() // 1_000_000 + 40
    return due, [(DUE, str(due).encode())]


class Later(Transactions):
    """Transactions of records that are due a moment later; every seventh is aborted."""

    is_atomic = False

    def _send(self, operation: Operation, values: list[bytes]) -> None:
        due, headers = _later()
        for place, value in zip(operation.places, values, strict=True):
            self._producer.send(
                place.topic, value, partition=place.partition, headers=headers, deliver_at=due
            )


class LaterBlocks(Opened):
    """`db.begin()` with records that are due a moment later; every seventh block raises."""

    is_atomic = False

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        due, headers = _later()
        try:
            with self._db.begin() as tx:
                for place, value in zip(operation.places, values, strict=True):
                    of_place = {"partition": place.partition, "headers": headers}
                    tx.publish(place.topic, value, deliver_at=due, **of_place)  # type: ignore[arg-type]
                if operation.number % 7 == 0:
                    raise _WantedError
        except _WantedError:
            return "not written"
        except eosdb.EosdbError as error:
            if error.outcome == "not written":
                return "not written"
            raise BrokenError(error.outcome) from error
        return "written"


class ReadsItself(Blocks):
    """Blocks in which the program reads its own files, as for a checksum, which drops SQLite's locks."""

    def _begin(self, setting: Setting) -> None:
        self._folder = setting.folder
        super()._begin(setting)

    def _meanwhile(self) -> None:
        for path in self._folder.glob(f"{FILE}*"):
            with contextlib.suppress(OSError):
                path.read_bytes()


class TimeLimit(Exception):
    """What a signal handler raises in the middle of anything, as those of Celery and RQ do."""


class Limited(Transactions):
    """Each operation has a time limit of its own process. The producer goes on: what was being committed is
    committed, and what else is open is aborted."""

    def _begin(self, setting: Setting) -> None:
        self._rng, self._is_limited = random.Random(setting.ledger.life), False
        signal.signal(signal.SIGALRM, self._is_over)
        super()._begin(setting)

    def _is_over(self, *_: object) -> None:
        if self._is_limited:
            self._is_limited = False
            raise TimeLimit

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        try:
            try:
                self._is_limited = True
                signal.setitimer(signal.ITIMER_REAL, self._rng.uniform(0.0001, _LIMIT_S))
                return super().store(operation, values)
            finally:
                self._is_limited = False
        except TimeLimit:
            return self._ended()

    def _ended(self) -> Outcome:
        state = self._producer.state
        try:
            if state == "COMMITTING_TRANSACTION":
                self._producer.commit_transaction()
                return "written"
            if state != "READY":
                self._producer.abort_transaction()
                return "not written"
        except eosdb.EosdbError as error:
            raise BrokenError("unknown") from error
        return "unknown"  # It was over already, or had not begun.


@cache
def _frozen() -> Any:
    return freezegun.freeze_time(datetime.now(UTC)).start()


class Frozen(Transactions):
    """Transactions while freezegun holds the program's clocks, and moves them between two of three."""

    def _begin(self, setting: Setting) -> None:
        _frozen()
        super()._begin(setting)

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        _frozen().tick(operation.number % 3 * 10)
        return super().store(operation, values)


FACES: Final[dict[str, type[Work]]] = {
    "reads-itself": ReadsItself,
    "time-limit": Limited,
    "frozen": Frozen,
    "later": Later,
    "later-block": LaterBlocks,
    "send-many": SendMany,
    "block": Blocks,
    "append-once": AppendOnce,
}

if __name__ == "__main__":
    name = sys.argv[2]
    sizes = SIZES if name != "send-many" else (*SIZES * 10, 7_000)
    work(FACES.get(name, Transactions), (eosdb.EosdbError,), sizes)
