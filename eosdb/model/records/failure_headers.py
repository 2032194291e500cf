"""Names of headers, groups and topics for dead letters, their replays and postponed records."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "__eosdb.errors."
"""The prefix of the headers with the origin of a failed record and its error."""
DUE: Final = f"{PREFIX}due_ms"
"""The header with the time of the next attempt. In dead letters, and only there, it is `NEVER`."""
NEVER: Final = -1
POSTPONED: Final = "__eosdb.postponed."
"""The prefix of the topics of postponed records."""
_REPLAY_GROUP: Final = "__eosdb.dlq."
_NAME_MAX: Final = 249
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


def replay_group(topic: str) -> str:
    """Return the group whose offsets record which dead letters of the topic were replayed: all below the
    committed offset, and those listed in its metadata."""
    return f"{_REPLAY_GROUP}{topic}"


def postponed_topic(group_id: str) -> str:
    """Return the topic of the records that the group's handlers have postponed. Characters that a topic
    name cannot have become `-`, so groups may share a topic: the headers name the group."""
    return f"{POSTPONED}{_NOT_IN_NAMES.sub('-', group_id)}"[:_NAME_MAX]


def replayed_beyond(metadata: str) -> set[int]:
    """Parse the offsets in the metadata of a replay group's offset. Raises ValueError for other text."""
    return {int(offset) for offset in metadata.split(",") if offset}
