"""Progress as a committed offset says exactly which records are complete, in every order of completion."""

from __future__ import annotations

import random

import pytest

from eosdb import OffsetAndMetadata
from eosdb.client.processor.progress import ProcessorProgress, is_complete

COMMITTED = [
    # records read, those complete, offset, metadata
    ([0, 1, 2], [0, 1, 2], 3, "eosdb:3"),
    ([0, 1, 2], [0], 1, "eosdb:1"),
    ([0, 1, 2], [2], 0, "eosdb:0 3 1"),
    ([0, 1, 2], [1], 0, "eosdb:0 2"),
    ([5, 7, 9, 30], [7, 9], 5, "eosdb:5 10"),
    ([5, 7, 9, 30, 31], [5, 30], 7, "eosdb:7 31 2"),
]


@pytest.mark.parametrize(("read", "complete", "offset", "metadata"), COMMITTED)
def test_the_offset_is_that_of_the_lowest_unfinished_record_and_the_metadata_names_the_others(
    read: list[int], complete: list[int], offset: int, metadata: str
) -> None:
    progress = ProcessorProgress()
    progress.take(read)
    for each in complete:
        progress.complete([each])
    assert progress.as_offset() == OffsetAndMetadata(offset, metadata)
    assert [each for each in read if is_complete(progress.as_offset(), each)] == sorted(complete)


@pytest.mark.parametrize(
    "metadata", ["", "mine", "eosdb:", "eosdb:12 x", "eosdb:-12", "eosdb:١٢", "eosdb:6 12"]
)
def test_another_programs_metadata_says_nothing(metadata: str) -> None:
    progress = ProcessorProgress(OffsetAndMetadata(5, metadata))
    assert not any(progress.was_complete(offset) for offset in range(20))


def test_however_often_it_is_interrupted_each_record_is_complete_once(seeds: list[int]) -> None:
    """Records are read in order and complete in any; some are deleted; each life begins with a commit."""
    for seed in seeds:
        rng = random.Random(seed)
        there = sorted(rng.sample(range(400), 200))
        committed, done = None, set[int]()
        while not done.issuperset(there):
            progress, in_hand = ProcessorProgress(committed), list[int]()
            start = 0 if committed is None else committed.offset
            complete = set(done)
            for offset in [each for each in there if each >= start]:
                assert progress.was_complete(offset) == (offset in done)
                progress.take([offset])
                if offset in done:
                    progress.complete([offset])
                else:
                    in_hand.append(offset)
                if in_hand and rng.random() < 0.6:
                    ended = in_hand.pop(rng.randrange(len(in_hand)))
                    progress.complete([ended])
                    complete.add(ended)
                if rng.random() < 0.1 and complete - done:
                    committed, done = progress.as_offset(), set(complete)
                    assert all(is_complete(committed, each) == (each in done) for each in there)
                if rng.random() < 0.03:
                    break
            if rng.random() < 0.3 and len(there) > 100:
                there.remove(rng.choice(there))
