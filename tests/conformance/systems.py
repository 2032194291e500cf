"""The systems that are compared: how each is called, what it needs installed, how one is made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.conformance.double import Double


@dataclass(frozen=True, slots=True)
class System:
    """`modules` maps what is imported to the package that brings it."""

    name: str
    label: str
    modules: dict[str, str]
    make: Callable[[], Double]
    program: str = ""
    """What else must be there to run it."""
    other_versions: Callable[[], list[str]] = list

    def missing(self) -> list[str]:
        """The packages that have to be installed first."""
        return [package for module, package in self.modules.items() if find_spec(module) is None]

    def missing_programs(self) -> list[str]:
        return [self.program] if self.program and shutil.which(self.program) is None else []

    def versions(self) -> list[str]:
        packages = [f"{it} {version(it)}" for it in self.modules.values() if it != "eosdb"]
        return packages + self.other_versions()


def _eosdb() -> Double:
    from tests.conformance.eosdb_double import EosdbDouble

    return EosdbDouble()


def _served() -> Double:
    from tests.conformance.process_double import served_eosdb

    return served_eosdb()


def _kfake() -> Double:
    from tests.conformance.process_double import kfake

    return kfake()


def _kfake_version() -> list[str]:
    (found,) = re.findall(r"(?m)^require \S+/kfake (\S+)$", _KFAKE_MODULE.read_text("utf-8"))
    return [f"kfake {found}"]


def _librdkafka() -> Double:
    from tests.conformance.rdkafka_double import RdkafkaMock

    return RdkafkaMock()


def _mockafka() -> Double:
    from tests.conformance.mockafka_double import Mockafka

    return Mockafka()


_CONFLUENT: Final = {"confluent_kafka": "confluent-kafka"}
_WIRE: Final = {**_CONFLUENT, "kafka": "kafka-python", "aiokafka": "aiokafka"}
_KFAKE_MODULE: Final = Path(__file__).parent / "kfake/go.mod"

SYSTEMS: Final = (
    System("eosdb", "eosdb", {"eosdb": "eosdb"}, _eosdb),
    System("wire", "eosdb over the wire", {"eosdb": "eosdb", **_WIRE}, _served),
    System("kfake", "kfake", _WIRE, _kfake, "go", _kfake_version),
    System("librdkafka", "librdkafka mock", _WIRE, _librdkafka),
    System("mockafka", "mockafka-py", {**_CONFLUENT, "mockafka": "mockafka-py"}, _mockafka),
)
