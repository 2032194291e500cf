"""What an actor is: a program that works through one face, how it is begun, and how it is judged."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.trials.hunts.programs.working import FEEDER
from tests.trials.hunts.world import PATIENCE_S, World

LATER_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"upgrade": "a file of an earlier schema has no group whose coordinator assigns (KIP-848)"}
)


class Need(enum.Enum):
    """What a fault needs of an actor, and the sentence that says why it cannot occur without it."""

    CONNECTION = "it uses no connection"
    SERVER = "it has no server"
    FORK = "its program does not fork"
    OWN_FILE = "its program opens no file of eosdb's"
    LEDGER = "it writes nothing of its own"
    LONG_LIFE = "its program ends by itself"
    WORKERS = "it is a single process"
    OWNER = "its file is eosdb's alone"


class Actor:
    """Base of the actors. The defaults are those of a writer of the library."""

    name: str
    summary: str
    module: str
    """Of `tests.trials.hunts.programs`."""
    has: frozenset[Need] = frozenset({Need.FORK, Need.OWN_FILE, Need.LEDGER, Need.LONG_LIFE})
    cannot: Mapping[str, str] = MappingProxyType({})
    """Faults by name that cannot occur for it, each with the reason in a sentence."""
    is_adopted = False
    """Whether the file was another application's before it was eosdb's."""
    weight: int = 1
    """How many faults' time its beginning takes: the heaviest sessions begin first, one at a time."""
    patience_s: float = PATIENCE_S
    """After this time without progress it waits for ever."""
    ends_on_error: bool = False
    """Whether its program ends when it fails, and is begun again, as by a supervisor."""

    def left_out(self) -> str | None:
        """Why it cannot be run on this machine: what is missing, and how it is had."""
        return None

    def begin(self, world: World) -> None:
        """Make what is needed, and start the processes."""
        world.add("client", world.program(self.module, self.name))

    def copy_of(self, world: World) -> Sequence[str]:
        """The command of a second client of the same name, beside the first."""
        return world.roles["client"].command

    def progress(self, world: World) -> int:
        """A number that grows as long as the actor works: what was acknowledged."""
        return world.ledgers.count("written")

    def settle(self, world: World) -> None:
        """After the processes have stopped: let what is carried on arrive."""

    def look(self, world: World) -> list[str]:
        """What is wrong at any instant besides what the judge sees: cheap, while everything works."""
        return []

    def problems(self, world: World) -> list[str]:
        """What is wrong besides what the judge looks at: a target that is not its source."""
        return []

    def files(self, world: World) -> list[Path]:
        """The database files."""
        return [world.path]

    def file_of(self, world: World) -> str:
        """The role of the process that has the file open, which a failing disk concerns."""
        return "server" if Need.SERVER in self.has else "client"


class Copier(Actor):
    """An actor that carries on what a feeder writes: the judge holds the feeder to its ledger, and
    `problems` compares the target with what is committed in the source."""

    has = frozenset({Need.FORK, Need.OWN_FILE, Need.LONG_LIFE})

    def begin(self, world: World) -> None:
        world.add("feeder", world.program("writers", FEEDER))
        super().begin(world)

    def progress(self, world: World) -> int:
        """How many records have arrived at the target."""
        raise NotImplementedError


WIRE: Final = frozenset({Need.CONNECTION, Need.SERVER, Need.LEDGER, Need.LONG_LIFE})
