"""What the check for exactly once says of an output: what is lost, doubled, or out of order, anywhere."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eosdb.testing import exactly_once

ARENA = cast(Any, None)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([[b"a", b"a", b"c"], [b"b"]], None),
        ([[b"a", b"c"], [b"a", b"b"]], None),
        ([[b"a", b"c"], [b"b"]], "lost [b'a'], doubled or unexpected []"),
        ([[b"a", b"a"], [b"b"]], "lost [b'c'], doubled or unexpected []"),
        ([[b"a", b"a", b"a", b"c"], [b"b"]], "lost [], doubled or unexpected [b'a']"),
        ([[b"a", b"a", b"c"], [b"b", b"c"]], "lost [], doubled or unexpected [b'c']"),
        ([[b"a", b"a", b"c"], [b"x"]], "lost [b'b'], doubled or unexpected [b'x']"),
        ([[b"c", b"a", b"a"], [b"b"]], "partition 0: out of order"),
        ([[b"a"], [b"b", b"a", b"c"]], "partition 1: out of order"),
    ],
)
def test_values_that_come_twice_count_twice_and_each_partition_has_its_order(
    monkeypatch: pytest.MonkeyPatch, stored: list[list[bytes]], said: str | None
) -> None:
    monkeypatch.setattr(exactly_once, "_committed", lambda _, tp: stored[tp.partition])
    expected = {"out": ["a", "a", "b", "c"]}
    problem = exactly_once._problem(ARENA, expected, {"out": 2}, True)
    assert (problem is None) if said is None else said in (problem or "")
    if said is not None and "order" in said:
        assert exactly_once._problem(ARENA, expected, {"out": 2}, False) is None
