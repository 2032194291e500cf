"""Decides which objects may be reused and which may be removed while others publish the same file.

decisions/0037: an object that might be removed is never reused, and times are those of the storage. A
chunk of an older snapshot, or one without a snapshot for long, is uploaded again under another name, so
that its removal harms no publisher.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from eosdb.integrations.publishing.manifest import Manifest

HURRY_S: Final = 1800.0
"""The maximum age in s of a publisher's listing of the storage when it writes its snapshot."""
SUPERSEDED_S: Final = 2 * HURRY_S
"""A snapshot stays for this time (s) after the next one, however many there are."""
UNNAMED_S: Final = 24 * 3600.0
"""An unnamed chunk stays for this time (s): a publisher may be about to name it."""


class Stored(NamedTuple):
    """An object: its size in bytes, and the time when it was written (s); None if the storage has none."""

    size: int
    modified: float | None


def in_order(snapshots: Mapping[str, Stored]) -> list[str]:
    return sorted(snapshots, key=lambda name: (snapshots[name].modified or 0.0, name), reverse=True)


def usable(
    chunks: Mapping[str, Stored], newest: Manifest | None, all_named: Collection[str], now: float
) -> set[str]:
    """The chunks that no publisher may remove within `HURRY_S`: those of the newest snapshot, and
    recently uploaded ones without a snapshot."""
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
    """The snapshots that are not among the `keep` newest, are not the latest, and were superseded more
    than `SUPERSEDED_S` ago."""
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
    """The chunks to remove. `named` are those of snapshots that stay, `released` those of snapshots that
    are being removed."""
    return [
        name
        for name, stored in chunks.items()
        if name not in named
        and (
            name in released or (stored.modified is not None and now - stored.modified > UNNAMED_S)
        )
    ]
