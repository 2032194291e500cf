"""What the next export reads, decided from what the target remembers and what the file has."""

from __future__ import annotations

import pytest

from eosdb import PartitionOffsets, TopicPartition
from eosdb.errors import ConfigError, IllegalStateError, OffsetOutOfRangeError
from eosdb.integrations.lakehouse.targets import (  # fmt: skip
    ExportSource,
    OffsetRange,
    after,
    check_topics,
    flat,
    known_mark,
    ranges,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def source(
    *, file_id: str = "F", place: str = "host:/a.db", start: int = 0, end: int = 10
) -> ExportSource:
    offsets = PartitionOffsets(start, end, end, end, end)
    mark = f"{file_id}.7.{'f' * 16}"
    ids = {"a": "1", "b": "2"}
    return ExportSource("a.db", place, mark, ids, {A: offsets, B: offsets}, {A: end, B: end})


def wanted(
    now: ExportSource,
    known: dict[str, int],
    topics: list[str] | None = None,
    *,
    allowed: bool = False,
) -> list[OffsetRange]:
    return ranges(now, known, None, topics, allow_data_loss=allowed)


def test_a_first_export_reads_everything_and_the_next_one_nothing() -> None:
    now = source(start=3)
    assert wanted(now, {}) == [OffsetRange(A, 3, 10), OffsetRange(B, 3, 10)]
    known = after(now, wanted(now, {}))
    assert wanted(now, known) == []
    assert wanted(source(end=12), known) == [OffsetRange(A, 10, 12), OffsetRange(B, 10, 12)]


def test_each_topic_goes_on_by_itself() -> None:
    known = after(source(), wanted(source(), {}, ["a"]))
    assert wanted(source(end=11), known) == [OffsetRange(A, 10, 11), OffsetRange(B, 0, 11)]
    with pytest.raises(ConfigError, match="no topic c; its topics: a, b"):
        check_topics(source(), ["a", "c"])


def test_the_mark_comes_back_as_it_was() -> None:
    assert known_mark(source(), {}) is None
    for digest in ("0" * 16, "f" * 16, "8000000000000000", "7fffffffffffffff"):
        now = ExportSource("a.db", "p", f"F.7.{digest}", {}, {}, {})
        numbers = after(now, [])
        assert all(-(2**63) <= number < 2**63 for number in numbers.values())
        assert known_mark(now, numbers) == now.mark


def test_of_two_files_in_one_place_the_newer_one_says_who_is_there() -> None:
    newer, older = after(source(file_id="G"), []), after(source(), [])
    found = flat({"G": newer, "F": older})
    assert found == {**older, **newer}
    with pytest.raises(IllegalStateError, match="was replaced"):
        wanted(source(file_id="H"), found)


def test_another_history_is_an_error_that_nothing_allows() -> None:
    with pytest.raises(IllegalStateError, match="an older copy"):
        ranges(source(), {}, "this is an older copy", None, allow_data_loss=True)


def test_another_file_in_the_place_of_one_that_was_exported_is_an_error() -> None:
    known = after(source(), wanted(source(), {}))
    other = source(file_id="G")
    with pytest.raises(IllegalStateError, match="was replaced"):
        wanted(other, known)
    assert len(wanted(other, known, allowed=True)) == 2
    assert len(wanted(source(file_id="G", place="host:/b.db"), known)) == 2
    assert wanted(source(place="host:/b.db"), known) == [], "it was moved"


def test_a_gap_is_an_error_unless_it_is_allowed() -> None:
    known = after(source(), wanted(source(), {}))
    later = source(start=11, end=12)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 10 .* begins at 11"):
        wanted(later, known)
    assert wanted(later, known, allowed=True) == [OffsetRange(A, 11, 12), OffsetRange(B, 11, 12)]
