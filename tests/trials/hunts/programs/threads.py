"""One idempotent producer of the library, shared by threads, each with a ledger of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import eosdb
from eosdb.errors import Outcome
from tests.trials.hunts.ledger import Ledger, Operation, Place
from tests.trials.hunts.programs.working import PARTITIONS, SIZES, TOPIC, Setting, Stopping
from tests.trials.hunts.programs.writers import Producing

THREADS: Final = 4
_PAUSE_S: Final = 0.02


class Plain(Producing):
    def _begin(self, setting: Setting) -> None:
        self.producer = self._producer = self._db.producer()


class Shared:
    """The producer that there is. It is made anew when a thread has found it broken."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._lock = setting, threading.Lock()
        self._current: Plain | None = None

    def get(self) -> Plain:
        """Raises EosdbError."""
        with self._lock:
            self._current = self._current or Plain(self._setting)
            return self._current

    def forget(self, broken: Plain | None) -> None:
        with self._lock:
            if self._current is broken is not None:
                self._current = None
                broken.close()

    def close(self) -> None:
        self.forget(self._current)


def send(client: Plain, operation: Operation) -> list[Outcome]:
    """All records of an operation before the first answer; what became of each."""
    answers: list[Callable[[], object]] = []
    for place, value in zip(operation.places, operation.values(), strict=True):
        try:
            future = client.producer.send(place.topic, value, partition=place.partition)
            answers.append(future.result)
        except eosdb.EosdbError as error:
            answers.append(partial(_fail, error))
    return [_told(answer) for answer in answers]


def _fail(error: eosdb.EosdbError) -> object:
    raise error


def _told(answer: Callable[[], object]) -> Outcome:
    try:
        answer()
    except eosdb.EosdbError as error:
        return error.outcome
    return "written"


def run(shared: Shared, ledger: Ledger, rng: random.Random, stopping: Stopping) -> None:
    while not stopping.is_set:
        time.sleep(rng.random() * _PAUSE_S)
        try:
            client = shared.get()
        except eosdb.EosdbError as error:
            print(f"no client: {type(error).__name__}: {error}", flush=True)
            time.sleep(0.1)
            continue
        places = [Place(TOPIC, rng.randrange(PARTITIONS)) for _ in range(rng.choice(SIZES))]
        operation = ledger.attempt(places, is_atomic=False)
        told = send(client, operation)
        ledger.close(operation, told)
        if {*told} != {"written"}:
            shared.forget(client)
            ledger.another_client()


def main() -> None:
    setting, stopping = Setting.from_arguments(), Stopping()
    shared, threads = Shared(setting), []
    for number in range(THREADS):
        ledger = Ledger(setting.folder, f"{setting.name}{number}")
        arguments = shared, ledger, random.Random(f"{setting.seed} {ledger.life}"), stopping
        threads.append(threading.Thread(target=run, args=arguments))
        threads[-1].start()
    try:
        while not stopping.is_set:
            time.sleep(_PAUSE_S)
            if not all(thread.is_alive() for thread in threads) and not stopping.is_set:
                raise SystemExit("a thread has ended")
    finally:
        stopping.is_set = True
        for thread in threads:
            thread.join()
        shared.close()


if __name__ == "__main__":
    main()
