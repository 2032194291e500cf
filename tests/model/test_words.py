"""Amounts, sizes and durations read the same wherever they are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eosdb.model import words
from tests.cases import each


@each(
    ("ms", "text", "short"),
    [
        (-5, "0 s", "0.0s"),
        (0, "0 s", "0.0s"),
        (20, "20 ms", "0.0s"),
        (400, "400 ms", "0.4s"),
        (999.9, "999 ms", "0.9s"),
        (2_500, "2.5 s", "2.5s"),
        (12_000, "12 s", "12s"),
        (59_999, "59 s", "59s"),
        (60_000, "1 min", "1m00s"),
        (185_000, "3 min 5 s", "3m05s"),
        (3_600_000, "1 h", "1h00m"),
        (7_805_000, "2 h 10 min", "2h10m"),
        (90_061_000, "1 d 1 h", "1d01h"),
        (5_000 * 86_400_000, "5,000 d", "5000d"),
    ],
)
def test_a_duration_has_two_units_at_most(ms: float, text: str, short: str) -> None:
    assert (words.duration(ms), words.duration(ms, short=True)) == (text, short)


@each("ms", [10**power - 1 for power in range(14)])
def test_a_short_duration_fits_into_a_column(ms: int) -> None:
    assert len(words.duration(ms, short=True)) <= 7


@each(("count", "text"), [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (102_399, "100 KiB"),
        (1024**2 - 1, "1.0 MiB"), (10**9, "954 MiB"), (2**50, "1024 TiB"), (-2048, "-2.0 KiB"),
    ])  # fmt: skip
def test_a_size_is_in_binary_units(count: float, text: str) -> None:
    assert words.size(count) == text


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [words.counted(n, "record") for n in (0, 1, 1_234)] == [
        "0 records", "1 record", "1,234 records",
    ]  # fmt: skip
    assert [words.number(n) for n in (None, 1.25, 12_345, 3.0)] == ["–", "1.2", "12,345", "3"]


def test_what_does_not_print_is_escaped() -> None:
    assert words.printable("a\u202eb\x00\ud800é\n") == "a\\u202eb\\x00\\ud800é\\n"
    assert words.printable("a\nb\r", keep="\n") == "a\nb\\r"
    assert [words.decoded(data) for data in ("é".encode(), b"\xff")] == ["é", "X'ff'"]


def test_a_long_name_keeps_its_end() -> None:
    assert words.shortened("orders-2026-11-23", 10) == "orders…-23"
    assert words.shortened("orders", 6) == "orders"


HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({"url": HERE.as_uri(), "dir_info": {}}, f"pip install '{HERE}[serve]'"),
        (
            {"url": HERE.as_uri(), "dir_info": {"editable": True}},
            f"pip install -e '{HERE}[serve]'",
        ),
        (
            {"url": "file:///gone/with%20it", "dir_info": {}},
            "pip install '.[serve]' in a checkout of eosdb",
        ),
        (
            {"url": "https://host/eosdb-1.tar.gz", "archive_info": {}},
            "pip install 'eosdb[serve] @ https://host/eosdb-1.tar.gz'",
        ),
        (
            {"url": "https://host/eosdb", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip install 'eosdb[serve] @ git+https://host/eosdb@c0ffee'",
        ),
        (None, "pip install 'eosdb[serve]'"),
    ],
    ids=["checkout", "editable", "checkout that is gone", "archive", "repository", "index"],
)
def test_an_extra_comes_from_where_eosdb_came_from(
    source: dict[str, object] | None,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = tmp_path / "eosdb-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: eosdb\nVersion: 1\n")
    if source is not None:
        (installed / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.syspath_prepend(tmp_path)
    said = words.needs_extra("the server", "serve", ImportError("No module named 'kafka'"))
    assert said == f"the server needs the extra 'serve': {command} (No module named 'kafka')"
