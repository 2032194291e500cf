"""That a member is there, as the others on its machine notice it, and that it looks whether they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from eosdb.client.requests import Presence
from eosdb.errors import EosdbError

LOOK_EVERY_MS: Final = 250
"""How often a member looks whether others have died."""
NEVER_MS: Final = 2**62


class Attendance:
    """One member's, for one membership after the other. `begin` and `end` are called under a lock."""

    def __init__(self, begin: Callable[[], Presence | None], *, is_static: bool) -> None:
        self._begin = begin
        # KIP-345: that a static member is away is to go unnoticed for its session.
        self._is_static: Final = is_static
        self._presence: Presence | None = None
        self._next_look_ms = 0

    def begin(self, member_id: str) -> int:
        """Before every join. Returns the number to join with: a new one for a new membership; 0 without
        one, which a membership that began so stays."""
        if self._presence is None and not member_id and not self._is_static:
            self._presence = self._begin()
        return 0 if self._presence is None else self._presence.number

    def end(self) -> None:
        """It is no member any more, as far as it knows; harmless when it was none."""
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.end()

    def look(self, now_ms: int) -> None:
        """Look after the others if it is time to, so that one that dies is not missed for long."""
        presence = self._presence
        if presence is None or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_EVERY_MS
        with contextlib.suppress(EosdbError):  # Who looks or writes next sees it, too.
            presence.look()

    @property
    def next_look_ms(self) -> int:
        """When (monotonic ms) to look again."""
        return NEVER_MS if self._presence is None else self._next_look_ms
