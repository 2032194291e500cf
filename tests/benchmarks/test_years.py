"""What is said about a file of many years is found in files that are as they are said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import years

pytestmark = pytest.mark.slow


def test_two_phases_of_which_neither_trims_anything_are_no_comparison(tmp_path: Path) -> None:
    for_ever = years.keeping(-1, 10)
    with pytest.raises(AssertionError, match="next to nothing was trimmed"):
        years._latencies(tmp_path, {"with": for_ever, "without": for_ever}, 50)


def test_what_a_transaction_leaves_is_in_the_journal_and_not_among_the_records(
    tmp_path: Path,
) -> None:
    empty, of_nothing = years._without_records(tmp_path / "empty.db", 0)
    full, of_all = years._without_records(tmp_path / "full.db", 100)
    assert of_nothing < of_all
    assert 0 < full - empty <= of_all, "100 values of 100 bytes would be seen"


def test_the_file_is_looked_at_while_it_grows_and_what_it_keeps_does_not(tmp_path: Path) -> None:
    ending = dict(years._growing(tmp_path / "a.db", years.keeping(50, 5), [100, 1_000]))
    whole = dict(years._growing(tmp_path / "b.db", years.keeping(-1, 5), [100, 1_000]))
    assert ending[1_000] < whole[1_000] / 2
    assert years._seconds(tmp_path / "a.db", "verify") > 0
