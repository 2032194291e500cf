"""The system's clock reads `time.time`, which programs and freezegun may replace."""

from __future__ import annotations

import pytest

from eosdb import SystemClock


def test_it_follows_a_replaced_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12.5)
    assert SystemClock().time_ms() == 12_500
