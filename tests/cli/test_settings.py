"""Options of the form NAME=VALUE: the name ends at the first equals sign, and must be there."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest

from eosdb.cli import options

NO_CONTEXT = cast(Any, None)


def test_a_value_may_have_equals_signs_and_be_empty() -> None:
    given = ("a=b=c", " retention.ms = 5 ", "empty=")
    assert options.settings(NO_CONTEXT, NO_CONTEXT, given) == {
        "a": "b=c", "retention.ms": "5", "empty": "",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "a", "=", "=b"])
def test_a_setting_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected NAME=VALUE"):
        options.settings(NO_CONTEXT, NO_CONTEXT, (text,))
