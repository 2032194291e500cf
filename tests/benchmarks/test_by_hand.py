"""The contender that writes by hand what eosdb writes: it is what it says, or it says that it is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import by_hand

pytestmark = pytest.mark.slow


def test_the_transactions_go_on_where_eosdb_stopped(tmp_path: Path) -> None:
    made = by_hand.template(tmp_path)
    assert made.inserted["records"] == 4, "two records and two markers"
    with closing(made.copy(tmp_path / "hand.db")) as file:
        before = _ends(file)
        for number in range(1, 4):
            made.write(file, number)
        assert _ends(file) == {partition: end + 3 * 2 for partition, end in before.items()}
        counted = file.execute("SELECT partition_id, count(*) FROM records GROUP BY 1").fetchall()
        assert dict(counted) == _ends(file)


def _ends(file: sqlite3.Connection) -> dict[int, int]:
    return dict(file.execute("SELECT partition_id, log_end_offset FROM partitions").fetchall())


def test_each_changed_row_is_updated_once(tmp_path: Path) -> None:
    made = by_hand.template(tmp_path)
    touched = [sql.split('"')[1] for sql, _ in made.statements if sql.startswith("UPDATE")]
    assert sorted(touched) == sorted(
        [*["partitions"] * 2, *["partition_producers"] * 2, "transactional_ids"]
    )
    assert len(made.statements) == len(touched) + len(made.inserted)


def test_a_contender_that_writes_less_than_eosdb_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = by_hand._template

    def one_statement_less(*states: object) -> by_hand.Template:
        made = whole(*states)  # type: ignore[arg-type]
        return replace(made, statements=made.statements[:-1])

    monkeypatch.setattr(by_hand, "_template", one_statement_less)
    with pytest.raises(ValueError, match=r"by eosdb, .* by hand"):
        by_hand.template(tmp_path)


def test_a_value_that_does_not_count_on_is_refused() -> None:
    assert by_hand._counting("offset", (1, 3, 5)) == "5 + 2 * i"
    assert by_hand._counting(
        "detail", ('{"a":1,"crc":7}', '{"a":2,"crc":9}', '{"a":3,"crc":1}')
    ) == ('f\'{{"a":{3 + 1 * i},"crc":{1}}}\'')
    assert by_hand._counting("checksum", (5, 9, 1)) == "1"
    with pytest.raises(ValueError, match="offset does not count on: 1, 3, 4"):
        by_hand._counting("offset", (1, 3, 4))
    with pytest.raises(ValueError, match="state changes more than its numbers"):
        by_hand._counting("state", ("Empty", "Ongoing", "Ongoing"))


def test_everybody_takes_part_in_a_round(tmp_path: Path) -> None:
    made = by_hand.template(tmp_path)
    folder = tmp_path / "round"
    folder.mkdir()
    found = by_hand.one_round(made, folder, 60)
    assert list(found) == [by_hand.OURS, by_hand.HAND, by_hand.ONE_ROW]
    assert all(cost.cpu > 0 and cost.wall > 0 for cost in found.values())
    with closing(sqlite3.connect(folder / "raw.db")) as file:
        assert file.execute("SELECT count(*) FROM records").fetchone() == (61,)
