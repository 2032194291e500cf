"""The systems that are compared: how each is called, what it needs installed, how one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

from tests.conformance.double import Double


@dataclass(frozen=True, slots=True)
class System:
    """`modules` maps what is imported to the package that brings it."""

    name: str
    label: str
    modules: dict[str, str]
    make: Callable[[], Double]

    def missing(self) -> list[str]:
        """The packages that have to be installed first."""
        return [package for module, package in self.modules.items() if find_spec(module) is None]

    def versions(self) -> list[str]:
        return [f"{package} {version(package)}" for package in self.modules.values()]


def _eosdb() -> Double:
    from tests.conformance.eosdb_double import EosdbDouble

    return EosdbDouble()


def _librdkafka() -> Double:
    from tests.conformance.rdkafka_double import RdkafkaMock

    return RdkafkaMock()


def _mockafka() -> Double:
    from tests.conformance.mockafka_double import Mockafka

    return Mockafka()


_CONFLUENT: Final = {"confluent_kafka": "confluent-kafka"}

SYSTEMS: Final = (
    System("eosdb", "eosdb", {"eosdb": "eosdb"}, _eosdb),
    System("librdkafka", "librdkafka mock", _CONFLUENT, _librdkafka),
    System("mockafka", "mockafka-py", {**_CONFLUENT, "mockafka": "mockafka-py"}, _mockafka),
)
