"""The loop that every writing program of the gauntlet runs, and what it is told.

`python -m tests.trials.hunts.programs.MODULE FOLDER NAME ADDRESS SEED`: FOLDER has the file `shop.db` and
the ledgers, ADDRESS is HOST:PORT of a server or "-". SIGTERM ends it after the operation in hand.
SIGUSR1 has it fork a child that uses and closes nothing of its parent's and ends at once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Protocol

from eosdb import BrokerConfig
from eosdb.client.consumer.settings import ConsumerConfig
from tests.trials.hunts.ledger import Ledger, Operation, Place, Told

FILE: Final = "shop.db"
TOPIC: Final = "shop"
PARTITIONS: Final = 2
CONFIG: Final = BrokerConfig(
    lock_timeout_ms=2_000,
    group_min_session_timeout_ms=100,
    group_consumer_session_timeout_ms=1_000,
    group_consumer_heartbeat_interval_ms=200,
)
"""Of the library's programs. Others hold a lock for longer than its time-out, and stop members for longer
than their sessions."""
OF_SERVER: Final = (
    "lock_timeout_ms", "group_consumer_session_timeout_ms", "group_consumer_heartbeat_interval_ms",
)  # fmt: skip
"""What of it the server has, too: the settings of groups hold for whoever is the coordinator."""
BY_COORDINATOR: Final = "-848"
"""How the names of members end whose coordinator assigns the partitions (KIP-848)."""
FEEDER: Final = "feeder"
"""The name of the program that writes what others carry on."""
SIZES: Final = (1, 2, 3, 20)
"""How many records an operation may have."""
_PAUSE_S: Final = 0.01
_FEEDER_PAUSE_S: Final = 0.1


class BrokenError(Exception):
    """The client is of no more use; `told` is what became of the operation."""

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self.told: Told = told


class Work(Protocol):
    """A client of one face."""

    is_atomic: bool
    """Whether an operation is there as a whole or not at all."""

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        """Store the values at their places. Raises BrokenError when the client must be made anew."""

    def close(self) -> None:
        """Free what the client holds."""


@dataclass(frozen=True)
class Setting:
    """What a program is told."""

    folder: Path
    name: str
    address: str
    seed: int

    @classmethod
    def from_arguments(cls) -> Setting:
        folder, name, address, seed = sys.argv[1:5]
        return cls(Path(folder), name, address, int(seed))

    @property
    def path(self) -> Path:
        return self.folder / FILE

    @property
    def group_protocol(self) -> Literal["classic", "consumer"]:
        return "consumer" if self.name.endswith(BY_COORDINATOR) else "classic"

    @property
    def member(self) -> ConsumerConfig:
        """What the library's members of groups are made with."""
        return {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 1_000,
            "heartbeat_interval_ms": 200,
        }

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.folder, self.name)


class Stopping:
    """Whether SIGTERM, or SIGINT, has come; SIGUSR1 forks."""

    def __init__(self) -> None:
        self.is_set = self._is_forking = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._fork)

    def _stop(self, *_: object) -> None:
        self.is_set = True

    def _fork(self, *_: object) -> None:
        if self._is_forking:
            return  # A fork amid the preparations of a fork waits for itself.
        self._is_forking = True
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        self._is_forking = False


def work(
    make: Callable[[Setting], Work],
    errors: tuple[type[Exception], ...],
    sizes: Sequence[int] = SIZES,
    *,
    is_spread: bool = True,
) -> None:
    """Store until told to stop. `errors` are those with which making a client of this face may fail; it is
    tried again then. Records of an operation that is not spread go to one partition."""
    setting, stopping = Setting.from_arguments(), Stopping()
    ledger = setting.ledger
    pause_s = _FEEDER_PAUSE_S if setting.name == FEEDER else _PAUSE_S
    rng = random.Random(f"{setting.seed} {ledger.life}")
    client: Work | None = None
    while not stopping.is_set:
        time.sleep(rng.random() * pause_s)
        if client is None:
            try:
                client = make(setting)
            except errors as error:
                print(f"no client: {type(error).__name__}: {error}", file=sys.stderr)
                time.sleep(0.1)
                continue
            if not client.is_atomic:
                ledger.another_client()
        places = [Place(TOPIC, rng.randrange(PARTITIONS)) for _ in range(rng.choice(sizes))]
        places = places if is_spread else places[:1] * len(places)
        operation = ledger.attempt(places, is_atomic=client.is_atomic)
        length = rng.choice((1, 100, 2000) if len(places) <= max(SIZES) else (1,))
        values = [value.encode().ljust(length) for value in operation.values()]
        try:
            ledger.close(operation, client.store(operation, values))
        except BrokenError as broken:
            ledger.close(operation, broken.told)
            client.close()
            client = None
    if client is not None:
        client.close()


def again(
    life: Callable[[Setting, Stopping], object],
    setting: Setting,
    stopping: Stopping,
    errors: tuple[type[Exception], ...],
) -> None:
    """Run lives of a client until told to stop: one that ends by an error is followed by another."""
    while not stopping.is_set:
        try:
            life(setting, stopping)
        except errors as error:
            print(f"anew after {type(error).__name__}: {error}", file=sys.stderr)
            time.sleep(0.1)
