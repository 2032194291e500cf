"""How values are shown to people."""

from __future__ import annotations

import pytest

from eosdb.integrations.ui import pages


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, ("null", "null", 0)),
        (b"plain", ("plain", "text", 0)),
        (b"\xff\x00", ("ff 00", "hex", 0)),
        ("x" * 130, ("x" * 120, "text", 10)),
        (b"\xff" * 50, (" ".join(["ff"] * 40), "hex", 10)),
        (b'{"a": 1}', ('{"a": 1}', "json", 0)),
        (b"{broken", ("{broken", "text", 0)),
        (b"[" * 20_000, ("[" * 120, "text", 19_880)),
    ],
)
def test_a_value_is_shown_as_what_it_is(data: object, expected: tuple[str, str, int]) -> None:
    found = pages.shown(data)
    assert (found.text, found.kind, found.left_out) == expected


def test_json_is_laid_out_when_asked() -> None:
    assert pages.shown(b'{"a":[1]}', 100, pretty=True).text == '{\n  "a": [\n    1\n  ]\n}'


def test_what_would_deceive_the_eye_is_written_as_an_escape() -> None:
    assert pages.visible("a\u202eb\x00\ud800é\n") == "a\\u202eb\\x00\\ud800é\n"
    assert pages.visible(7) == 7


def test_a_time_is_iso_8601_or_a_dash() -> None:
    assert pages.moment(-1) == pages.moment(None) == "–"
    assert pages.moment(0) == "1970-01-01T00:00:00Z"
