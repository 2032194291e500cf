"""What people write for a time, as milliseconds since the epoch."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.model.clock import parse_time_ms
from tests.cases import each

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z


@each(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("20261121", 20_261_121),
        (str(2**63 - 1), 2**63 - 1),
        ("1970-01-01", 0),
        ("1970-01-01T01:00+01:00", 0),
        ("2026-11-21", NOON - 12 * 3_600_000),
        ("2026-11-21T12:00", NOON),
        ("2026-11-21 12:00", NOON),
        ("2026-11-21T12:00Z", NOON),
        ("2026-11-21T12:00:30", NOON + 30_000),
        ("2026-11-21T12:00:30.5", NOON + 30_500),
        ("2026-11-21T12:00:30,5Z", NOON + 30_500),
        ("2026-11-21T12:00:30.123999", NOON + 30_123),
        ("2026-11-21T12:00:30.123999999Z", NOON + 30_123),
        ("2026-11-21T14:00+02:00", NOON),
        ("2026-11-21T14:00+0200", NOON),
        ("2026-11-21T14:00:00.000+02", NOON),
        ("2026-11-21T06:30:00-05:30", NOON),
        ("9999-12-31T23:59:59.999", 253_402_300_799_999),
        ("9999-12-31T23:59:59.999-12:00", 253_402_343_999_999),
    ],
)
def test_what_is_a_time(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@each(
    ("text", "says"),
    [
        ("", "expected milliseconds"),
        ("yesterday", "expected milliseconds"),
        ("-5", "expected milliseconds"),
        ("1.5", "expected milliseconds"),
        (" 5", "expected milliseconds"),
        ("5\n", "expected milliseconds"),
        ("٣", "expected milliseconds"),
        (str(2**63), "expected milliseconds"),
        ("9" * 5_000, "expected milliseconds"),
        ("2026-11", "expected milliseconds"),
        ("2026-W47-6", "expected milliseconds"),
        ("2026-11-21T12", "expected milliseconds"),
        ("2026-11-21x12:00", "expected milliseconds"),
        ("2026-11-21Z", "expected milliseconds"),
        ("21.11.2026", "expected milliseconds"),
        ("2026-11-21T12:00 Europe/Berlin", "expected milliseconds"),
        ("2026-02-29", "not a valid time"),
        ("2026-13-01", "not a valid time"),
        ("2026-11-21T25:00", "not a valid time"),
        ("2026-11-21T23:59:60", "not a valid time"),
        ("2026-11-21T12:00+25:00", "not a valid time"),
        ("0000-01-01", "not a valid time"),
        ("1969-12-31T23:59:59.999Z", "before 1970"),
        ("0001-01-01T00:00+14:00", "before 1970"),
    ],
)
def test_what_is_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_time_ms(text)


@given(st.integers(0, 2**63 - 1))
def test_digits_are_milliseconds(ms: int) -> None:
    assert parse_time_ms(str(ms)) == ms


@given(
    st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(9999, 12, 30)),
    st.none() | st.integers(-14 * 60, 14 * 60),
)
def test_every_instant_is_read_as_python_writes_it(
    moment: datetime.datetime, offset_minutes: int | None
) -> None:
    zone = datetime.timedelta(minutes=offset_minutes or 0)
    aware = moment.replace(tzinfo=datetime.timezone(zone))
    text = moment.isoformat() if offset_minutes is None else aware.isoformat()
    since = aware - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert parse_time_ms(text) == since // datetime.timedelta(milliseconds=1)


@pytest.mark.slow
@given(st.text(max_size=40) | st.from_regex(r"[0-9T:+\-Z. ]{0,30}", fullmatch=True))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    try:
        assert 0 <= parse_time_ms(text) < 2**63
    except ValueError as error:
        assert repr(text) in str(error)
