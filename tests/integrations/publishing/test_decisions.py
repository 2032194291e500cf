"""The pure decisions: which blocks are sent, and what may be used or removed while others publish."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosdb.integrations.publishing.manifest import (
    HURRY_S,
    REGION,
    SUPERSEDED_S,
    UNNAMED_S,
    Manifest,
    Stored,
    StoredChunk,
    divide,
    removable_chunks,
    removable_snapshots,
    runs,
    usable,
)

DAY = UNNAMED_S


def hashes_of(content: list[int]) -> list[bytes]:
    return [b"%016d" % number for number in content]


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32))
def test_whatever_changes_every_block_is_found_with_its_content(seed: int) -> None:
    """Many snapshots one after another, each with other blocks changed, and the file grows or shrinks; an
    object is what was put into it, by name."""
    rng = random.Random(seed)
    objects: dict[str, list[int]] = {}
    content: list[int] = []
    before: list[int] = []
    chunks: list[StoredChunk] = []
    for turn in range(12):
        content = content[: rng.choice([len(content)] * 4 + [rng.randrange(len(content) + 1)])]
        content += [rng.randrange(10**9) for _ in range(rng.choice([0, 1, 5, 3 * REGION]))]
        for _ in range(rng.choice([0, 1, 3, 40]) if content else 0):
            content[rng.randrange(len(content))] = rng.randrange(10**9)
        there = {chunk.name for chunk in chunks if rng.random() < 0.9}
        kept, fresh = divide(hashes_of(content), hashes_of(before), chunks, there)
        assert {chunk.name for chunk in kept} <= there
        made = []
        for number, blocks in enumerate(fresh):
            name = f"{turn}-{number}"
            objects[name] = [content[block] for block in blocks]
            made.append(StoredChunk(name, len(blocks), blocks))
        chunks, before = [*kept, *made], list(content)
        found: dict[int, int] = {}
        for run in runs(range(len(content)), chunks):
            values = objects[run.name][run.at : run.at + len(run.blocks)]
            found |= dict(zip(run.blocks, values, strict=True))
        assert [found[block] for block in range(len(content))] == content
        stored = sum(len(objects[chunk.name]) for chunk in chunks)
        assert stored <= 2 * len(content) + 2 * REGION
        assert len(chunks) <= 8 * (len(content) // REGION + 1)


def test_a_change_is_sent_and_what_is_beside_it_is_not() -> None:
    content = list(range(3 * REGION))
    first = [
        StoredChunk(f"{n}", REGION, tuple(range(n * REGION, (n + 1) * REGION))) for n in range(3)
    ]
    changed = list(content)
    changed[REGION + 6] = changed[REGION + 7] = -1
    names = {chunk.name for chunk in first}
    kept, fresh = divide(hashes_of(changed), hashes_of(content), first, names)
    assert (kept, fresh) == (first, [(REGION + 6, REGION + 7)])
    kept, fresh = divide(hashes_of(changed), hashes_of(content), first, {"0", "2"})
    assert (kept, fresh) == ([first[0], first[2]], [tuple(range(REGION, 2 * REGION))])


def manifest(*names: str) -> Manifest:
    chunks = tuple(StoredChunk(name, 1, (number,)) for number, name in enumerate(names))
    return Manifest("id", "s", 1, "m", (), 1, 1, "hashes", chunks, {})


def test_only_what_nobody_may_remove_soon_is_used_again() -> None:
    now = 10 * DAY
    newest = manifest("newest")
    chunks = {
        "newest": Stored(1, 0.0),
        "of an older snapshot": Stored(1, now - 1),
        "left by an attempt": Stored(1, now - 1),
        "left long ago": Stored(1, now - DAY + 1),
        "of unknown age": Stored(1, None),
    }
    named = {"newest", "of an older snapshot"}
    assert usable(chunks, newest, named, now) == {"newest", "left by an attempt"}


def test_the_newest_snapshots_stay_and_so_does_what_was_replaced_lately() -> None:
    now = 100 * SUPERSEDED_S
    snapshots = {f"{n}": Stored(1, n * SUPERSEDED_S) for n in (90, 97, 98, 99.5, 100)}
    assert removable_snapshots(snapshots, "100", 1, now) == ["97", "90"]
    assert removable_snapshots(snapshots, "100", 4, now) == ["90"]
    assert removable_snapshots(snapshots, "90", 1, now) == ["97"]
    assert removable_snapshots(snapshots, "100", 9, now) == []


def test_chunks_go_with_their_snapshot_and_unnamed_ones_a_day_later() -> None:
    now = 10 * DAY
    chunks = {
        "named": Stored(1, 0.0),
        "released": Stored(1, now),
        "released and named": Stored(1, now),
        "under way": Stored(1, now - DAY + 1),
        "left": Stored(1, now - DAY - 1),
        "of unknown age": Stored(1, None),
    }
    found = removable_chunks(
        chunks, {"named", "released and named"}, {"released", "released and named"}, now
    )
    assert found == ["released", "left"]


def test_the_times_leave_whoever_names_a_snapshot_enough() -> None:
    """What was usable when a publisher looked stays until after it must have named its snapshot."""
    assert HURRY_S < SUPERSEDED_S
    assert UNNAMED_S / 2 + HURRY_S < UNNAMED_S
