"""`eosdb serve`: the file as a broker for Kafka's clients, until SIGTERM or Ctrl-C.

A service manager (systemd, `Type=notify`) is notified when the server is ready.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import click

from eosdb.cli import file_command, options, output
from eosdb.database import MEMORY
from eosdb.model.config import BrokerConfig
from eosdb.model.values import Durability
from eosdb.system.signals import Stop, stopped_by_signals

_SOCKET: Final = "NOTIFY_SOCKET"
"""The variable that names the manager's socket; a leading @ stands for the abstract namespace."""


@contextlib.contextmanager
def ready_for_service_manager() -> Iterator[None]:
    """Context manager: notify the service manager that the process is ready, and on exit that it stops.
    Does nothing without a manager."""
    _say("READY=1")
    try:
        yield
    finally:
        _say("STOPPING=1")


def _say(state: str) -> None:
    name = os.environ.get(_SOCKET, "")
    if not name.startswith(("/", "@")):
        return
    address = name.replace("@", "\0", 1) if name.startswith("@") else name
    with (
        contextlib.suppress(OSError),  # The service manager may have ended.
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        sock.sendto(state.encode(), address)


_M_ARENA_MAX: Final = -8
_TRIM_EVERY: Final = 30


_pem: Final = functools.partial(click.option, type=click.Path(dir_okay=False), metavar="PATH")


@click.command(cls=file_command.FileCommand)
@options.port(
    help="Port to listen on (default: 9092). 0 and --memory take a free port, which the output shows."
)
@click.option(
    "--listen", "host", default="localhost", show_default=True, metavar="ADDRESS",
    help="Address to listen on; localhost is 127.0.0.1 and ::1.",
)  # fmt: skip
@click.option(
    "--advertised", metavar="HOST:PORT",
    help="Address that clients must use (advertised.listeners); default: the one they connected to.",
)  # fmt: skip
@_pem("--tls-cert", help="Server certificate, PEM. With it, clients must use TLS.")
@_pem("--tls-key", help="Private key of the certificate, PEM.")
@_pem(
    "--tls-ca",
    help="CA certificates, PEM; clients must have a certificate signed by one (ssl.client.auth=required).",
)
@click.option(
    "--require-sasl", is_flag=True, help="Clients must log in with SASL (`eosdb users add`)."
)
@options.create
@click.option(
    "--memory", is_flag=True,
    help="For tests: serve an empty file in memory instead of FILE, create topics when they are named, and "
    "end when the parent process ends.",
)  # fmt: skip
@click.option("--print-address", is_flag=True, help="Print only HOST:PORT when it listens.")
@options.setting(
    "--config", help="Setting of the broker by Kafka's name, such as num.partitions=4 (repeatable)."
)
@click.option(
    "--durability", type=click.Choice(get_args(Durability)), default="full", show_default=True,
    help="What an acknowledged record survives: power loss, a killed process, or neither.",
)  # fmt: skip
@options.metrics_port
def serve(
    session: file_command.Session,
    /,
    port: int | None,
    host: str,
    create: bool,
    memory: bool,
    print_address: bool,
    config: dict[str, str],
    durability: Durability,
    metrics_port: int | None,
    **serving: Any,
) -> None:
    """Serve FILE to Kafka's clients, until SIGTERM or Ctrl-C. Other processes may use and serve it
    at the same time. An address other than localhost needs --tls-cert, --tls-key and --require-sasl. Needs
    the extra serve.

    Prints the address once it listens. Useful settings for tests: num.partitions=4,
    group.min.session.timeout.ms=10.

    \b
    Example:
      eosdb serve shop.db --create --config auto.create.topics.enable=true
      eosdb serve --memory --print-address
    """
    _share_one_heap()
    stop, parent = Stop(), os.getppid()
    port = (0 if memory else 9092) if port is None else port
    if memory:
        if session.is_named:
            raise click.UsageError("give FILE or --memory, not both")
        session, create = session.at(MEMORY), True
        config = {"auto.create.topics.enable": "true", **config}
    with (
        stopped_by_signals(stop.request),
        session.open(create=create, durability=durability, config=broker_config(config)) as db,
        db.serve(port, host, **serving) as server,
        ready_for_service_manager(),
    ):
        where = server.bootstrap_servers
        output.line(where if print_address else f"serving {db.path} at {where}")
        with file_command.figures_served(metrics_port, db.metrics_text):
            looks = itertools.count(1)  # One a second.

            def is_over() -> bool:
                if not next(looks) % _TRIM_EVERY:
                    trim_heap()
                return memory and os.getppid() != parent

            stop.wait(is_over)


def broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """Parse broker settings, named as in Kafka or as in Python. Raises InvalidConfigError."""
    defaults = {field.name: field.default for field in dataclasses.fields(BrokerConfig)}
    values = {name.replace(".", "_"): text for name, text in given.items()}
    return BrokerConfig(**{name: _typed(text, defaults.get(name)) for name, text in values.items()})  # type: ignore[arg-type]


def _typed(text: str, default: object) -> object:
    """Convert to the setting's type. Invalid text is returned unchanged, and BrokerConfig rejects it."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, int):
        with contextlib.suppress(ValueError):
            return int(text)
    return text


def _share_one_heap() -> None:
    """Let all threads share one heap of glibc: separate heaps never shrink (30 MB for 50 clients), and save
    nothing under the interpreter's lock."""
    with contextlib.suppress(AttributeError, OSError):  # Only glibc has this function.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free pages to the system. By itself glibc returns none below an object that is in use, so what
    a burst of large requests took would stay (50 MB for 100 clients)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
