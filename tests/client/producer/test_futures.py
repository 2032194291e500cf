"""The future of a record is a `concurrent.futures.Future`: asyncio and everything else can wait for it.

Its state is made when it is first used, and from then on a thread of the producer completes it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.client.producer.producer import Producer
from tests.concurrency.worker import threads
from tests.readers import committed_values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


@pytest.fixture
def file(db_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, durability="normal") as db:
        db.admin.create_topic("t")
        yield db


def transactional(db: eosdb.Database) -> Producer:
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def sending_threads() -> set[threading.Thread]:
    """Forgotten producers of other tests may have some, too, for a while."""
    return {each for each in threading.enumerate() if each.name.startswith("eosdb-sender")}


MAKERS: tuple[Callable[[eosdb.Database], Producer], ...] = (
    lambda db: db.producer(),
    lambda db: db.producer(linger_ms=2),
    transactional,
)


@pytest.mark.parametrize("make", MAKERS, ids=("plain", "linger", "transaction"))
def test_asyncio_waits_for_many(file: eosdb.Database, make: Callable[..., Producer]) -> None:
    """Nobody calls `result`, `flush` or `commit` before they are done."""
    producer = make(file)

    async def main() -> list[int]:
        futures = [asyncio.wrap_future(producer.send("t", b"%d" % i)) for i in range(20)]
        return [stored.offset for stored in await asyncio.gather(*futures)]

    assert asyncio.run(main()) == [*range(20)]
    if make is transactional:
        assert committed_values(file, TP) == []
        producer.commit_transaction()
    assert committed_values(file, TP) == [b"%d" % i for i in range(20)]
    producer.close()


def test_concurrent_futures_wait_for_them(file: eosdb.Database) -> None:
    producer = transactional(file)
    futures = [producer.send("t", b"%d" % i) for i in range(10)]
    assert wait(futures[:3], return_when=FIRST_COMPLETED).done
    assert not wait(futures[:5]).not_done
    done = [future.result().offset for future in as_completed(futures)]
    assert sorted(done) == [*range(10)]
    assert all(isinstance(future, Future) for future in futures)


def test_a_callback_is_called_by_the_producers_thread_without_any_other_call(
    file: eosdb.Database,
) -> None:
    producer, told = transactional(file), threading.Event()
    names: list[str] = []

    def tell(future: Future[eosdb.RecordMetadata]) -> None:
        names.append(threading.current_thread().name)
        told.set()

    future = producer.send("t", b"v")
    assert not future.done()
    assert future.running()
    assert not future.cancel()
    assert not future.cancelled()
    with producer._lock:  # The thread has to wait for it.
        future.add_done_callback(tell)
    assert told.wait(60)
    assert names == ["eosdb-sender-producer"]
    assert future.done()
    assert not future.running()
    producer.abort_transaction()


def test_no_thread_is_started_for_what_only_asks_for_results(file: eosdb.Database) -> None:
    producer = transactional(file)
    before = sending_threads()
    future = producer.send("t", b"v")
    assert repr(future) == "<ProduceFuture t-0: waiting>"
    assert not future.done()
    assert future.result().offset == 0
    assert future.exception() is None
    assert repr(future) == "<ProduceFuture t-0: offset 0>"
    wait([future])
    future.add_done_callback(lambda _: None)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = future.nothing
    assert sending_threads() <= before


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_thread_ends_with_its_producer(file: eosdb.Database, is_closed: bool) -> None:
    before = sending_threads()
    producer = transactional(file)
    wait([producer.send("t", b"v")])
    (thread,) = sending_threads() - before
    if is_closed:
        producer.close()
    del producer
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_records_of_a_batch_that_is_split_complete_one_by_one(file: eosdb.Database) -> None:
    """Also those that were watched before, whose batch is not the one they are in afterwards."""
    file.admin.create_topic("small", config={"max.message.bytes": 100})
    producer = transactional(file)
    futures = [producer.send("small", b"x" * 20) for _ in range(64)]
    told: list[int] = []
    with producer._lock:  # The thread has to wait until all are watched.
        for future in futures:
            future.add_done_callback(lambda done: told.append(done.result().offset))
    done, left = wait(futures, timeout=60)
    assert not left
    assert sorted(future.result().offset for future in done) == [*range(64)]
    assert sorted(told) == [*range(64)]
    producer.commit_transaction()


def test_errors_are_the_awaiters(file: eosdb.Database) -> None:
    file.admin.create_topic("tiny", config={"max.message.bytes": 10})

    async def fails(future: Future[eosdb.RecordMetadata], error: type[eosdb.EosdbError]) -> None:
        with pytest.raises(error):
            await asyncio.wrap_future(future)

    asyncio.run(fails(file.producer().send("tiny", b"x" * 11), eosdb.MessageTooLargeError))
    producer = transactional(file)
    refused = producer.send("tiny", b"x" * 11)
    asyncio.run(fails(refused, eosdb.MessageTooLargeError))
    assert "MessageTooLarge" in repr(refused) or "bytes" in repr(refused)
    with pytest.raises(eosdb.EosdbError):
        producer.commit_transaction()
    producer.abort_transaction()


@pytest.mark.parametrize("how", ["abort", "close"])
def test_records_that_are_given_up_fail_for_those_who_wait(file: eosdb.Database, how: str) -> None:
    producer = transactional(file)
    future = producer.send("t", b"v")
    told = threading.Event()
    with producer._lock:  # Before the thread sends it.
        future.add_done_callback(lambda _: told.set())
        if how == "abort":
            producer.abort_transaction()
        else:
            producer._transactions.close()  # What `close` does before it ends the thread.
    assert told.wait(60)

    async def main() -> None:
        with pytest.raises(eosdb.TransactionAbortableError):
            await asyncio.wrap_future(future)

    asyncio.run(main())
    assert wait([future]).done == {future}
    producer.close()


def test_who_gives_up_waiting_takes_no_record_back(file: eosdb.Database) -> None:
    producer = transactional(file)

    async def main() -> None:
        with producer._lock:
            waiting = asyncio.ensure_future(asyncio.wrap_future(producer.send("t", b"v")))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await asyncio.wrap_future(producer.send("t", b"w"))).offset == 1

    asyncio.run(main())
    producer.commit_transaction()
    assert committed_values(file, TP) == [b"v", b"w"]


@pytest.mark.parametrize("linger_ms", [0, 1])
def test_many_threads_watch_what_others_complete(file: eosdb.Database, linger_ms: int) -> None:
    """Each future completes, whoever makes its state at the instant in which the batch is done."""
    producer = file.producer(linger_ms=linger_ms)
    told: list[int] = []

    def work(number: int) -> None:
        for _ in range(40):
            future = producer.send("t", b"%d" % number)
            future.add_done_callback(lambda done: told.append(done.result().offset))
            assert not wait([future], timeout=60).not_done

    threads(4, work)
    producer.close()
    assert sorted(told) == [*range(160)]
