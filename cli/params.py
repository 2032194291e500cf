"""Types of options that several commands take."""

from __future__ import annotations

import click

from eosdb.clock import parse_time_ms


class TimeMs(click.ParamType[int]):
    """A time as milliseconds since the epoch, or in ISO 8601."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME_MS = TimeMs()
