"""`eosdb serve`: the file as a broker for Kafka's clients, until somebody stops it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import threading
from collections.abc import Mapping
from typing import Final

import click

from eosdb.cli import output
from eosdb.cli.params import settings
from eosdb.cli.session import Session, pass_session
from eosdb.cli.stopping import stopped_by_signals
from eosdb.model.config import BrokerConfig

_M_ARENA_MAX: Final = -8


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=9092, show_default=True,
    help="Port to listen at; 0 takes a free one, which the first line of output names.",
)  # fmt: skip
@click.option(
    "--listen", "host", default="localhost", show_default=True, metavar="ADDRESS",
    help="Address to listen at; localhost is 127.0.0.1 and ::1.",
)  # fmt: skip
@click.option(
    "--tls-cert", type=click.Path(dir_okay=False), help="Certificate, PEM: clients must use TLS."
)
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Key of the certificate, PEM.")
@click.option(
    "--tls-ca", type=click.Path(dir_okay=False),
    help="Certificates, PEM: clients must show one that these have signed (ssl.client.auth=required).",
)  # fmt: skip
@click.option(
    "--require-sasl", is_flag=True, help="Let in users with a password alone (`eosdb users add`)."
)
@click.option("--create", is_flag=True, help="Create FILE if it does not exist.")
@click.option(
    "--config", "given", callback=settings, multiple=True, metavar="NAME=VALUE",
    help="Broker setting by Kafka's name, such as auto.create.topics.enable=true (repeatable).",
)  # fmt: skip
@click.option(
    "--durability", type=click.Choice(("full", "normal", "off")), default="full", show_default=True,
    help="What an acknowledged record survives: power loss, a killed process, or neither.",
)  # fmt: skip
@click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
    help="Show figures for Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port.",
)  # fmt: skip
@pass_session
def serve(
    session: Session,
    file: str | None,
    port: int,
    host: str,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    require_sasl: bool,
    create: bool,
    given: dict[str, str],
    durability: str,
    metrics_port: int | None,
) -> None:
    """Serve FILE (or that of --db) to Kafka's clients, until SIGTERM or Ctrl-C. Other processes may use
    and serve it meanwhile. Another address than localhost needs --tls-cert, --tls-key and
    --require-sasl. Needs pip install 'eosdb[serve]'.

    Says where it listens when it does. Settings for a broker that tests use:
    auto.create.topics.enable=true, num.partitions=4, group.min.session.timeout.ms=10.

    \b
    Example:
      eosdb serve shop.db --create --config auto.create.topics.enable=true
    """
    _share_one_heap()
    stopped = threading.Event()
    if file is not None:
        session = dataclasses.replace(session, path=file)
    with (
        stopped_by_signals(stopped.set),
        session.open(create=create, durability=durability, config=broker_config(given)) as db,
        db.serve(
            port, host, require_sasl=require_sasl, tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca
        ) as server,
    ):
        output.line(f"serving {db.path} at {server.bootstrap_servers}")
        with contextlib.ExitStack() as cleanup:
            if metrics_port is not None:
                from eosdb.integrations.exposition.server import FigureServer

                shown = cleanup.enter_context(FigureServer(metrics_port, db.metrics_text))
                output.line(f"figures at http://127.0.0.1:{shown.port}/metrics", err=True)
            stopped.wait()


def broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """From texts by Kafka's names, in Kafka's spelling or Python's. Raises InvalidConfigError."""
    defaults = {field.name: field.default for field in dataclasses.fields(BrokerConfig)}
    values = {name.replace(".", "_"): text for name, text in given.items()}
    return BrokerConfig(**{name: _typed(text, defaults.get(name)) for name, text in values.items()})  # type: ignore[arg-type]


def _typed(text: str, default: object) -> object:
    """As the setting takes it; what cannot be read stays text, and is refused by the setting."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, int):
        with contextlib.suppress(ValueError):
            return int(text)
    return text


def _share_one_heap() -> None:
    """Keep glibc from giving each connection's thread a heap, for each keeps what it once had: 30 MB for 50
    clients. They allocate by turns anyway, under the interpreter's lock."""
    with contextlib.suppress(AttributeError, OSError):  # Another C library has no such option.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
