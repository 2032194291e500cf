"""Programs that fork while they have a file open, in each of the everyday forms.

`python -m tests.chaos.fork_worker FORM FILE`. Every child opens the file itself, stores records one by
one and appends what was acknowledged to `FILE.acknowledged`; so does the parent meanwhile, which
leaves its block before the children are done.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import eosdb
from eosdb import TopicPartition

TP = TopicPartition("t", 0)
CHILDREN = 3
RECORDS = 12
KILLED = "killed"
"""What the names of those begin with that are killed between storing a record and saying so."""


def store(path: str, name: str, count: int = RECORDS) -> None:
    """What a child does, and what a parent does as well."""
    with eosdb.connect(path) as db:
        append(db, path, name, count)


def append(db: eosdb.Database, path: str, name: str, count: int = RECORDS) -> None:
    for number in range(count):
        value = f"{name}-{number}"
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value.encode())]))
        with open(f"{path}.acknowledged", "a") as file:
            file.write(f"{value}\n")


def by_multiprocessing(method: str, path: str) -> None:
    context = multiprocessing.get_context(method)
    children = [
        context.Process(target=store, args=(path, f"child{i}"))  # type: ignore[attr-defined]
        for i in range(CHILDREN)
    ]
    with eosdb.connect(path) as db:
        append(db, path, "before", 3)
        for i, child in enumerate(children):
            child.start()
            append(db, path, f"between{i}", 2)
    for child in children:
        child.join()
        assert child.exitcode == 0


def by_pool(path: str) -> None:
    context = multiprocessing.get_context("fork")
    with eosdb.connect(path) as db:
        append(db, path, "before", 3)
        with concurrent.futures.ProcessPoolExecutor(CHILDREN, mp_context=context) as pool:
            futures = [pool.submit(store, path, f"child{i}") for i in range(CHILDREN)]
            append(db, path, "meanwhile", 5)
            for future in futures:
                future.result()
        append(db, path, "after", 3)


def by_prefork(path: str) -> None:
    """As a web server does: the application is loaded, then workers are forked; one that is killed is
    replaced while the others serve; SIGTERM has the master close, and then end its workers."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())

    def serve(name: str) -> None:
        with eosdb.connect(path) as db:
            for count in itertools.takewhile(lambda _: not ended.is_set(), itertools.count()):
                append(db, path, f"{name}.{count}", 1)

    db = eosdb.connect(path)
    append(db, path, "loaded", 3)
    workers = [fork(functools.partial(serve, f"worker{i}")) for i in range(CHILDREN)]
    for i in range(CHILDREN):
        victim = fork(functools.partial(serve, f"{KILLED}{i}"))
        append(db, path, f"master{i}", 3)
        until_acknowledged(path, f"{KILLED}{i}", 3)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
    os.kill(os.getpid(), signal.SIGTERM)
    ended.wait()
    db.close()
    until_acknowledged(path, "worker", 20)
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
        wait_for(worker)


def until_acknowledged(path: str, who: str, more: int) -> None:
    """So many more records than there are."""

    def count() -> int:
        return Path(f"{path}.acknowledged").read_text().count(f"\n{who}")

    wanted = count() + more
    while count() < wanted:
        pass


def by_threads(path: str) -> None:
    """Other threads write, read and open the file at the instant of the fork."""
    ended = threading.Event()
    with eosdb.connect(path) as db:

        def write(number: int) -> None:
            count = 0
            while not ended.is_set():
                append(db, path, f"thread{number}.{count}", 1)
                count += 1

        def read() -> None:
            while not ended.is_set():
                db.broker.fetch(TP, 0)

        def visit() -> None:
            count = 0
            while not ended.is_set():
                store(path, f"visit{count}", 1)
                count += 1

        works: list[Callable[[], None]] = [
            functools.partial(write, 0), functools.partial(write, 1), read, visit
        ]  # fmt: skip
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        try:
            for i in range(2 * CHILDREN):
                wait_for(fork(functools.partial(store, path, f"child{i}", 4)))
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def by_grandchildren(path: str) -> None:
    """A child that has opened the file itself forks in its turn."""

    def work() -> None:
        with eosdb.connect(path) as db:
            append(db, path, "child", 3)
            grandchild = fork(functools.partial(store, path, "grandchild"))
            append(db, path, "child again", 3)
            wait_for(grandchild)

    with eosdb.connect(path) as db:
        append(db, path, "parent", 3)
        child = fork(work)
        append(db, path, "parent again", 3)
        wait_for(child)


def fork(work: Callable[[], None]) -> int:
    """A child that does `work` and ends, without unwinding what the parent was doing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def wait_for(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert status == 0, f"a child ended with status {status}"


FORMS: dict[str, Callable[[str], None]] = {
    "fork": functools.partial(by_multiprocessing, "fork"),
    "spawn": functools.partial(by_multiprocessing, "spawn"),
    "forkserver": functools.partial(by_multiprocessing, "forkserver"),
    "pool": by_pool,
    "prefork": by_prefork,
    "threads": by_threads,
    "grandchildren": by_grandchildren,
}

if __name__ == "__main__":
    FORMS[sys.argv[1]](sys.argv[2])
