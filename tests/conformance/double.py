"""What a check may ask of a system under test: the seam between the checks and the adapters.

A call that the system's own API has no counterpart for raises `NotReachable`; the cell is `n/a` then.
Everything else is really asked. Values are text, and there is one topic of at least two partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

TOPIC: Final = "t"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

FENCED: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED"})
ENDED: Final = FENCED | {"INVALID_TXN_STATE"}
"""The commit of a transaction that timed out: the name depends on the client's transaction version."""
ILLEGAL_CALL: Final = frozenset({"IllegalStateError", "_STATE"})
BAD_SETTING: Final = frozenset({"ConfigError", "_INVALID_ARG"})


class NotReachable(Exception):
    """The API of this double offers no way to ask."""


class Identity(NamedTuple):
    """Whom the broker takes a producer for."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A producer's settings; None leaves the double's own default."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    idempotence: bool | None = None
    acks: str | None = None
    max_in_flight: int | None = None


class Producer(Protocol):
    """A producer of the double's own client."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, value: str, partition: int = 0, timestamp: int | None = None) -> None:
        """Returns when the record is acknowledged; raises what the broker refused it with."""

    def send_offset(self, offset: int, member: object) -> None:
        """Send the group's offset in partition 0 to the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def identity(self) -> Identity: ...


class Requests(Protocol):
    """The request level: identities and sequences of one's own choosing, partition 0."""

    def identity(self, transactional_id: str | None = None) -> Identity: ...

    def add_partition(self, transactional_id: str, identity: Identity) -> None: ...

    def append(
        self,
        identity: Identity,
        sequence: int,
        values: list[str],
        transactional_id: str | None = None,
    ) -> int:
        """The offset that the batch's first record is answered with."""

    def end(self, transactional_id: str, identity: Identity, *, committed: bool) -> Identity:
        """Whom to go on as."""


class Double(Protocol):
    """One system under test, empty when it is made."""

    def producer(self, settings: Settings) -> Producer: ...

    def read(self, partition: int = 0, isolation: str = READ_COMMITTED) -> list[str]:
        """What a new consumer reads from the beginning to the end."""

    def end_offset(self, isolation: str) -> int: ...

    def offset_at(self, timestamp: int, isolation: str) -> int | None: ...

    def commit_offset(self, group: str, offset: int) -> None: ...

    def committed_offset(self, group: str, *, stable: bool = False) -> int | None:
        """The group's offset; `stable` asks for one that no open transaction can change."""

    def read_on(self, group: str) -> list[str]:
        """What a consumer of the group reads from the group's offset on, and then commits."""

    def member(self, group: str) -> object:
        """Group metadata to send offsets with."""

    def departed_member(self, group: str) -> object:
        """The same of a member that is no longer in the group."""

    def requests(self) -> Requests: ...

    def wait(self, ms: int) -> None: ...

    def restart(self) -> None:
        """End the process that holds the data, and start it again."""

    def error_name(self, error: Exception) -> str:
        """Kafka's name of the error where it has one, else the name of its class."""

    def close(self) -> None: ...


class Differs(Exception):
    """The double did not do what Kafka does; says what it did."""


def expect(what: str, seen: object, wanted: object) -> None:
    if seen != wanted:
        raise Differs(f"{what} is {seen}, not {wanted}")


def forbid(what: str, happens: bool) -> None:
    if happens:
        raise Differs(what)


def expect_refused(
    double: Double, what: str, call: Callable[[], object], names: frozenset[str]
) -> None:
    """The call must be refused for the right reason; an error of another name is raised on."""
    if not is_refused(double, call, names):
        raise Differs(f"{what} is accepted")


def is_refused(double: Double, call: Callable[[], object], names: frozenset[str]) -> bool:
    try:
        call()
    except Exception as error:
        if double.error_name(error) in names:
            return True
        raise
    return False


def started(double: Double, transactional_id: str = "a", timeout_ms: int = 60_000) -> Producer:
    """A transactional producer after its init."""
    settings = Settings(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    producer = double.producer(settings)
    producer.init()
    return producer


def plain(double: Double) -> Producer:
    """A producer without transactions."""
    return double.producer(Settings())
