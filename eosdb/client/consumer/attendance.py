"""How group members on one machine notice that another member's process has died: by its kernel lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from eosdb.client.transport import Presence
from eosdb.errors import EosdbError

LOOK_EVERY_MS: Final = 250
"""The time between two checks for dead members, in ms."""
NEVER_MS: Final = 2**62


class Attendance:
    """Holds a presence while its consumer is a member. `begin` and `end` are called under a lock."""

    def __init__(self, begin: Callable[[], Presence | None], *, is_static: bool) -> None:
        self._begin = begin
        # KIP-345: a static member may be away until its session ends, so it holds no presence.
        self._is_static: Final = is_static
        self._presence: Presence | None = None
        self._next_look_ms = 0

    def begin(self, member_id: str) -> int:
        """Return the number to join with; called before every join. A new membership gets a new presence.
        0 means no presence; a membership that began without one stays without."""
        if self._presence is None and not member_id and not self._is_static:
            self._presence = self._begin()
        return 0 if self._presence is None else self._presence.number

    def end(self) -> None:
        """End the presence, because the consumer is no longer a member; idempotent."""
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.end()

    def look(self, now_ms: int) -> None:
        """Check for dead members if a check is due."""
        presence = self._presence
        if presence is None or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_EVERY_MS
        with contextlib.suppress(EosdbError):  # The next check, or the next writer, notices it too.
            presence.look()

    @property
    def next_look_ms(self) -> int:
        """When (monotonic ms) the next check is due."""
        return NEVER_MS if self._presence is None else self._next_look_ms
