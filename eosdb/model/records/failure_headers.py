"""Names that mark dead letters and their replays, for the processor and the administration."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__eosdb.errors."
"""The prefix of the headers with the origin of a failed record and its error."""
DUE: Final = f"{PREFIX}due_ms"
"""The header with the time of the next attempt: `NEVER` in dead letters, but never in retry topics."""
NEVER: Final = -1
_REPLAY_GROUP: Final = "__eosdb.dlq."


def replay_group(topic: str) -> str:
    """The group whose offsets record the topic's replayed dead letters: those below the committed offset,
    and those listed in the offset's metadata."""
    return f"{_REPLAY_GROUP}{topic}"


def replayed_beyond(metadata: str) -> set[int]:
    """The offsets listed in the metadata. Raises ValueError for any other text."""
    return {int(offset) for offset in metadata.split(",") if offset}
