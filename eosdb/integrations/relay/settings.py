"""The settings of a relay, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypedDict

from eosdb.errors import ConfigError
from eosdb.integrations.relay.planning import ON_GAP, TOO_LARGE
from eosdb.integrations.relay.status import POSITIONS_TOPIC
from eosdb.integrations.relay.values import RelayLimits
from eosdb.model import validation
from eosdb.model.progress import Progress

DEAD_LETTERS: Final = ".dlq"
"""The suffix of the topics for records that are too large."""


class RelayOptions(TypedDict, total=False):
    """The options of `to_kafka`, `from_kafka` and `to_file`; see RelaySettings."""

    name: str
    topics: Iterable[str] | None
    create_topics: bool
    too_large: str
    on_gap: str
    positions_topic: str
    max_records: int
    max_bytes: int
    notify: Callable[[str], object] | None
    on_progress: Progress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The settings of a relay. Raises ConfigError with the setting and the reason."""

    name: str = "relay"
    """The relay's name. With the source's id it identifies the positions, and the relay that a second one
    fences."""
    topics: Iterable[str] | None = None
    """The topics to relay. None: all whose names do not begin with two underscores, including later
    ones."""
    create_topics: bool = True
    """Whether to create topics that the target lacks, with the source's settings and number of
    partitions."""
    too_large: str = "stop"
    """Either "stop", or "dead-letter": records that the target refuses as too large are sent to
    `<topic>.dlq`."""
    on_gap: str = "stop"
    """Either "stop", or "earliest": if the source has deleted the next records, continue with its earliest
    record."""
    positions_topic: str = POSITIONS_TOPIC
    """The topic of the target in which the relay stores its positions."""
    max_records: int = 5_000
    """The most records of a transaction; offsets of markers and aborted records count."""
    max_bytes: int = 8_388_608
    """The most bytes of keys and values in a transaction, unless a single record is larger."""
    notify: Callable[[str], object] | None = None
    """Called with a sentence for the operator. If it is None, the logger `eosdb.relay` logs it."""
    on_progress: Progress | None = None
    """Called after each transaction with the number of records relayed by this object, and with that number
    plus the lag."""

    def __post_init__(self) -> None:
        if not validation.check_text("name", self.name, ConfigError):
            raise ConfigError("name: got no text, expected a name for the relay such as 'relay'")
        if self.topics is not None:
            object.__setattr__(self, "topics", tuple(validation.check_texts("topics", self.topics)))
        validation.check_choice("too_large", self.too_large, *TOO_LARGE)
        validation.check_choice("on_gap", self.on_gap, *ON_GAP)
        validation.check_topic_name(self.positions_topic)
        validation.check_whole("max_records", self.max_records, 1)
        validation.check_whole("max_bytes", self.max_bytes, 1)

    @property
    def limits(self) -> RelayLimits:
        """The limits of a chunk of records."""
        return RelayLimits(self.max_records, self.max_bytes)
