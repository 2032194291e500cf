"""What may be used again, and what may be removed, while others publish the same file: pure decisions.

decisions/0037: nothing that might be removed is ever used again, and times are the storage's own. A chunk
of an older snapshot, or one that lies about for long, is sent anew under another name, so whoever removes
it takes it from nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from eosdb.integrations.publishing.manifest import Manifest

HURRY_S: Final = 1800.0
"""So old may be what a publisher knows of the storage when it names its snapshot."""
SUPERSEDED_S: Final = 2 * HURRY_S
"""So long a snapshot stays after the next one, however many there are."""
UNNAMED_S: Final = 24 * 3600.0
"""So long a chunk stays that no snapshot names: somebody may be about to."""


class Stored(NamedTuple):
    """An object: its size in bytes, and when it was written (s), None if the storage does not tell."""

    size: int
    modified: float | None


def in_order(snapshots: Mapping[str, Stored]) -> list[str]:
    """The names, the newest first."""
    return sorted(snapshots, key=lambda name: (snapshots[name].modified or 0.0, name), reverse=True)


def usable(
    chunks: Mapping[str, Stored], newest: Manifest | None, all_named: Collection[str], now: float
) -> set[str]:
    """The chunks that nobody may remove for `HURRY_S` at least: those of the newest snapshot, and those
    that were sent not long ago and are not named yet."""
    of_newest: Collection[str] = newest.objects if newest is not None else ()
    return {
        name
        for name, stored in chunks.items()
        if name in of_newest
        or (
            name not in all_named
            and stored.modified is not None
            and now - stored.modified < UNNAMED_S / 2
        )
    }


def removable_snapshots(
    snapshots: Mapping[str, Stored], latest: str, keep: int, now: float
) -> list[str]:
    """Those that neither count among the `keep` newest, nor are the latest, nor were so until lately."""
    order = in_order(snapshots)
    found = []
    for next_newer, name in zip(order[keep - 1 :], order[keep:], strict=False):
        since = snapshots[next_newer].modified
        if name != latest and since is not None and now - since > SUPERSEDED_S:
            found.append(name)
    return found


def removable_chunks(
    chunks: Mapping[str, Stored], named: Collection[str], released: Collection[str], now: float
) -> list[str]:
    """`named` by a snapshot that stays, `released` by those that were just removed."""
    return [
        name
        for name, stored in chunks.items()
        if name not in named
        and (
            name in released or (stored.modified is not None and now - stored.modified > UNNAMED_S)
        )
    ]
