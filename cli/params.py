"""Parameter types and options shared by several commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eosdb.model.clock import parse_time_ms

if TYPE_CHECKING:
    _Base = click.ParamType[int]
else:
    _Base = click.ParamType  # Not generic in every version of click.


class TimeMs(_Base):
    """Milliseconds since the epoch, or an ISO 8601 time."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse to milliseconds; invalid text is a usage error."""
        if isinstance(value, int):
            return value
        try:
            return parse_time_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME_MS = TimeMs()

command_config_option = click.option(
    "--command-config", "config", type=click.Path(dir_okay=False), metavar="PATH",
    help="Property file for the Kafka client, librdkafka's names: sasl.password, ssl.ca.location, …",
)  # fmt: skip
metrics_port_option = click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
    help="Serve metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port.",
)  # fmt: skip


def settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable option NAME=VALUE."""
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"got {text!r}, expected NAME=VALUE such as retention.ms=1000")
        pairs[name.strip()] = value.strip()
    return pairs
