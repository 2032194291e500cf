"""The settings of a relay, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypedDict

from eosdb.errors import ConfigError
from eosdb.integrations.relay.planning import ON_GAP, TOO_LARGE
from eosdb.integrations.relay.positions import POSITIONS_TOPIC
from eosdb.integrations.relay.values import Limits
from eosdb.model.progress import Progress
from eosdb.model.validation import (
    check_choice,
    check_text,
    check_texts,
    check_topic_name,
    check_whole,
)

DEAD_LETTERS: Final = ".dlq"
"""Behind a topic's name: the topic of its records that were too large."""


class RelayOptions(TypedDict, total=False):
    """What `to_kafka`, `from_kafka` and `to_file` take beside the two ends; see RelaySettings."""

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
    """Raises ConfigError that names the setting and why."""

    name: str = "relay"
    """With the source's id it is what positions are kept under, and whom a second relay fences."""
    topics: Iterable[str] | None = None
    """None: all whose names do not begin with two underscores, also those that are created later."""
    create_topics: bool = True
    """Create topics that the target lacks, with as many partitions and the source's settings."""
    too_large: str = "stop"
    """Either "stop", or "dead-letter": a record that the target refuses for its size goes to
    `<topic>.dlq`."""
    on_gap: str = "stop"
    """Either "stop", or "earliest": where the source has deleted what comes next, go on with what
    it has."""
    positions_topic: str = POSITIONS_TOPIC
    """The topic of the target in which the relay keeps how far it is."""
    max_records: int = 5_000
    """Records in a transaction at most; offsets of markers and aborted records count."""
    max_bytes: int = 8_388_608
    """Bytes of keys and values in a transaction, unless a single record is larger."""
    notify: Callable[[str], object] | None = None
    """Called with a sentence about what an operator might want to know. None: the logger `eosdb.relay`."""
    on_progress: Progress | None = None
    """Called after each transaction with the records relayed by this object, and with those and the lag."""

    def __post_init__(self) -> None:
        if not check_text("name", self.name, ConfigError):
            raise ConfigError("name: got no text, expected a name for the relay such as 'relay'")
        if self.topics is not None:
            object.__setattr__(self, "topics", tuple(check_texts("topics", self.topics)))
        if not isinstance(self.create_topics, bool):
            raise ConfigError(f"create_topics: got {self.create_topics!r}, expected True or False")
        check_choice("too_large", self.too_large, *TOO_LARGE)
        check_choice("on_gap", self.on_gap, *ON_GAP)
        check_topic_name(self.positions_topic)
        check_whole("max_records", self.max_records, 1)
        check_whole("max_bytes", self.max_bytes, 1)

    @property
    def limits(self) -> Limits:
        """Of a chunk."""
        return Limits(self.max_records, self.max_bytes)
