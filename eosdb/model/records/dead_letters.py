"""How dead letters and their replays are told from other records: names that the processor, which writes
them, and the administration, which counts them, share."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__eosdb.errors."
"""How the names of the headers begin that say where a failed record came from and what went wrong."""
DUE: Final = f"{PREFIX}due_ms"
"""The header with the time of the next attempt; dead letters have `NEVER` in it, records of a retry topic
do not."""
NEVER: Final = -1
_REPLAY_GROUP: Final = "__eosdb.dlq."


def replay_group(topic: str) -> str:
    """The group whose offsets say which letters of the topic have been replayed: all below the committed
    offset, and those listed in the offset's metadata."""
    return f"{_REPLAY_GROUP}{topic}"


def replayed_beyond(metadata: str) -> set[int]:
    """The offsets listed in the metadata. Raises ValueError for other text."""
    return {int(offset) for offset in metadata.split(",") if offset}
