"""Where a group stands in the cluster, by counting; and whether both sides are the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from eosdb import TopicPartition
from eosdb.errors import IllegalStateError
from eosdb.integrations.moving import comparison
from eosdb.integrations.moving.comparison import Print, SurveyHere, SurveyThere, print_of
from eosdb.integrations.relay.values import RelayRecord

TP = TopicPartition("orders", 0)


def _side(values: Sequence[str], offsets: Sequence[int] | None = None) -> list[Print]:
    return [
        print_of(RelayRecord("orders", 0, offset, 7, b"k", value.encode(), ()), timed=True)
        for offset, value in zip(offsets or range(len(values)), values, strict=True)
    ]


def _surveys(
    ours: list[Print], theirs: list[Print], committed: Sequence[int], skip: int = 0
) -> tuple[SurveyHere, SurveyThere]:
    here = comparison.survey_here(ours, committed, skip)
    return here, comparison.survey_there(theirs, here, [1_000])


def test_a_place_is_found_whatever_stands_between_the_records() -> None:
    ours = _side("abcde", [3, 4, 8, 9, 15])
    theirs = _side("abcde", [0, 1, 2, 10, 11])
    here, there = _surveys(ours, theirs, [0, 3, 4, 5, 8, 15, 16])
    assert comparison.difference(TP, here, there) is None
    found = [comparison.translated(TP, at, here, there) for at in (0, 3, 4, 5, 8, 15, 16)]
    assert found == [0, 0, 1, 2, 2, 11, 1_000]


def test_records_that_the_file_has_deleted_are_not_counted() -> None:
    here, there = _surveys(_side("cde", [12, 13, 14]), _side("abcde"), [2, 13])
    assert comparison.difference(TP, here, there) is None
    assert [comparison.translated(TP, at, here, there) for at in (2, 13)] == [2, 3]


def test_records_that_the_cluster_has_deleted_are_left_out_unless_a_group_needs_them() -> None:
    ours, theirs = _side("abcde"), _side("de", [13, 14])
    here, there = _surveys(ours, theirs, [0, 3, 4], skip=3)
    assert comparison.difference(TP, here, there) is None
    assert [comparison.translated(TP, at, here, there) for at in (3, 4)] == [13, 14]
    with pytest.raises(IllegalStateError, match="has deleted records after offset 0"):
        comparison.translated(TP, 0, here, there)


@pytest.mark.parametrize("theirs", ["abcdex", "abxde", "xbcde", "abdce", "abcd", "", "abccde"])
def test_anything_else_is_a_difference(theirs: str) -> None:
    here, there = _surveys(_side("abcde"), _side(theirs), [])
    assert comparison.difference(TP, here, there) is not None


@pytest.mark.parametrize(
    "record",
    [
        RelayRecord("orders", 0, 0, 8, b"k", b"a", ()),
        RelayRecord("orders", 0, 0, 7, None, b"a", ()),
        RelayRecord("orders", 0, 0, 7, b"", b"a", ()),
        RelayRecord("orders", 0, 0, 7, b"k", None, ()),
        RelayRecord("orders", 0, 0, 7, b"ka", b"", ()),
        RelayRecord("orders", 0, 0, 7, b"k", b"a", (("h", None),)),
        RelayRecord("orders", 0, 0, 7, b"k", b"a", (("h", b""),)),
    ],
)
def test_a_fingerprint_is_of_all_that_a_record_has(record: RelayRecord) -> None:
    (plain,) = _side("a")
    assert print_of(record, timed=True).content != plain.content


def test_records_that_look_alike_are_told_apart_by_their_number() -> None:
    chance = random.Random(4)
    for _ in range(200):
        values = [chance.choice("aab") for _ in range(chance.randint(1, 12))]
        gaps = sorted(chance.sample(range(40), len(values)))
        theirs = sorted(chance.sample(range(40), len(values)))
        cut = chance.randrange(len(values))
        ours = _side(values[cut:], gaps[cut:])
        here, there = _surveys(ours, _side(values, theirs), range(45))
        assert comparison.difference(TP, here, there) is None
        for at in range(45):
            following = [place for place, own in zip(theirs, gaps, strict=True) if own >= at]
            expected = following[0] if following else 1_000
            if at < gaps[cut]:
                expected = theirs[cut]
            assert comparison.translated(TP, at, here, there) == expected


def _keyed(letters: Sequence[tuple[int, str, str | None]]) -> list[Print]:
    return [
        print_of(
            RelayRecord("p", 0, at, 7, key.encode(), None if v is None else v.encode(), ()),
            timed=True,
        )
        for at, key, v in letters
    ]


def test_of_a_compacted_topic_the_newest_of_each_key_counts() -> None:
    everything = [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "b", None), (4, "c", "1")]
    ours = _keyed([everything[2], everything[4]])  # Compacted, the tombstone is gone, too.
    assert comparison.compacted_difference(TP, ours, _keyed(everything)) is None
    found = comparison.compacted_difference(TP, ours, _keyed([*everything, (5, "a", "3")]))
    assert found is not None
    assert "1 have other records" in found


def test_in_a_compacted_topic_a_group_reads_the_next_record_that_there_is() -> None:
    ours = _keyed([(2, "a", "2"), (4, "c", "1"), (6, "a", "4")])
    theirs = _keyed([(10, "a", "1"), (11, "a", "2"), (13, "c", "1"), (14, "a", "4")])
    places = [comparison.compacted_translated(TP, at, ours, theirs, 20) for at in (0, 3, 5, 7)]
    assert places == [11, 13, 14, 20]
    gone = _keyed([(13, "c", "1"), (14, "a", "4")])
    assert comparison.compacted_translated(TP, 0, ours, gone, 20) == 13
    with pytest.raises(IllegalStateError, match="somebody else writes"):
        comparison.compacted_translated(TP, 0, ours, [], 20)
