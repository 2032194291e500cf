"""The soak looks at what it says, and its verdict is that of the figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eosdb
from tests.hunts import soak
from tests.hunts.soak import Line, Look


@pytest.mark.process
def test_a_short_soak_ends_with_a_verdict_and_a_file_that_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--minutes", "0.05", "--keep-s", "0.5", "--rate", "50", "--folder", str(tmp_path)]
    soak.main(asked)
    heading, *shown = capsys.readouterr().out.splitlines()
    assert len(shown) == soak.LINES + 6 + 1
    assert [line.split(":")[0].strip() for line in shown[soak.LINES : -1]] == heading.split()[1:]
    assert shown[-1].startswith("verify: VerifyReport(ok=True, problems=()")
    assert 0 < int(shown[soak.LINES - 1].split()[0]) <= 151, (
        "no more than 50 a second, for 3 seconds"
    )


def test_what_is_there_is_what_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        found = Look.at(path, os.getpid())
        assert found.file_mb == path.stat().st_size / 1e6
        assert found.wal_mb == (tmp_path / "a.db-wal").stat().st_size / 1e6 > 0
        assert found.consumer_rss_mb > 1


def test_what_grows_by_more_than_a_tenth_and_a_megabyte_is_not_flat() -> None:
    found = [_line(), *[_line()] * 11, *[_line()] * 6]
    assert all(is_flat for *_, is_flat in soak.verdicts(found))
    found[-1] = _line(file_mb=11.2, wal_mb=10.9, free_mb=0.9)
    assert {name: is_flat for name, _, _, is_flat in soak.verdicts(found)} == {
        "file_mb": False,
        "wal_mb": True,
        "free_mb": True,
        "producer_rss_mb": True,
        "consumer_rss_mb": True,
        "p99_ms": True,
    }


def test_the_first_third_does_not_count_and_of_p99_one_line_does_not() -> None:
    high = _line(file_mb=100.0, p99_ms=100.0)
    by_name = {name: is_flat for name, *_, is_flat in soak.verdicts([high, *[_line()] * 11])}
    assert by_name["file_mb"]
    grown = soak.verdicts([high] * 4 + [_line()] * 4 + [high, *[_line()] * 3])
    assert {name: is_flat for name, *_, is_flat in grown} == {**by_name, "file_mb": False}
    assert not soak.verdicts([_line()] * 8 + [high] * 4)[-1][-1]


def _line(
    file_mb: float = 10.0, wal_mb: float = 10.0, free_mb: float = 0.0, p99_ms: float = 1.0
) -> Line:
    return Line(1, p99_ms, Look(file_mb, wal_mb, free_mb, 30.0, 30.0))
