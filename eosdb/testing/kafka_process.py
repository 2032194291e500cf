"""A Kafka cluster in another process, for suites whose environment cannot have the extra `serve`, which
pins versions of kafka-python and aiokafka."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any, Final, NoReturn

from eosdb.errors import ConfigError
from eosdb.model.closing import Closeable

COMMAND: Final = "EOSDB_KAFKA_COMMAND"
_PATIENCE_S: Final = 10


class KafkaProcess(str, Closeable):
    """The address of a cluster that `eosdb serve --memory` of another environment serves (`command`).

    A `str` and a context manager, as `KafkaDouble`. Its time is the machine's; it has neither faults nor
    `db`.
    """

    _process: subprocess.Popen[str]

    def __new__(cls, command: str, **config: Any) -> KafkaProcess:
        words = [*shlex.split(command), "serve", "--memory", "--print-address"]
        given = {"group_min_session_timeout_ms": 1, **config}
        words += [f"--config={name.replace('_', '.')}={value}" for name, value in given.items()]
        try:
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise ConfigError(f"{COMMAND}: {words[0]} cannot be started: {error}") from None
        assert process.stdout is not None
        if not (address := process.stdout.readline().strip()):
            raise ConfigError(f"{COMMAND}: {shlex.join(words)}: {process.communicate()[1].strip()}")
        made = super().__new__(cls, address)
        made._process = process
        return made

    def __init__(self, command: str, **config: Any) -> None:
        pass

    @property
    def bootstrap_servers(self) -> str:
        """The address as a plain `str`."""
        return str(self)

    def get_bootstrap_server(self) -> str:
        """The address as a plain string (the method's name is testcontainers')."""
        return str(self)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"eosdb_kafka.{name}: this cluster runs in another process ({COMMAND}), so a test has only its "
            "address"
        )

    def close(self) -> None:
        """End the process; idempotent."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
