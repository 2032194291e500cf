"""Settings of the Kafka client: librdkafka's, by its names, from a file or the environment.

They may contain passwords, so they appear in no `repr` and no error, and are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eosdb.errors import ConfigError

ENVIRONMENT: Final = "EOSDB_KAFKA_"
_PROMISE: Final = "exactly once would not hold"
_REFUSED: Final = {
    "enable.idempotence": _PROMISE,
    "transactional.id": "it is made of the relay's name and the source's id; use name (--name)",
    "isolation.level": f"{_PROMISE}: only committed records are relayed",
    "acks": _PROMISE,
    "request.required.acks": _PROMISE,
    "enable.gapless.guarantee": _PROMISE,
    "bootstrap.servers": "the address is given by itself",
    "metadata.broker.list": "the address is given by itself",
    "group.id": "the relay keeps its own positions, and has no group",
    "enable.auto.commit": "the relay keeps its own positions, and has no group",
    "auto.offset.reset": "use on_gap (--on-gap)",
    "enable.partition.eof": "the relay needs it",
    "delivery.report.only.error": "the relay needs it",
}
_PUBLIC: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
    "compression.type",
    "client.id",
)
"""Settings whose values may appear in librdkafka's error messages."""


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """Checked settings. Raises ConfigError for a setting that would break exactly-once, or that the relay
    sets itself."""

    values: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                raise ConfigError(
                    f"Kafka setting {name!r}: expected a librdkafka name and text or a number"
                )
            if name in _REFUSED:
                raise ConfigError(f"Kafka setting {name} may not be given: {_REFUSED[name]}")
        object.__setattr__(self, "values", {name: _text(v) for name, v in self.values.items()})

    def hide(self, text: str) -> str:
        """The text without values that may be secret."""
        for name, value in self.values.items():
            if name not in _PUBLIC and len(value) > 3:
                text = text.replace(value, "[hidden]")
        return text

    def __repr__(self) -> str:
        return f"KafkaSettings({', '.join(sorted(self.values))})"


def kafka_settings(
    given: Mapping[str, str] | None, environment: Mapping[str, str]
) -> KafkaSettings:
    """The settings given, over those of the environment: EOSDB_KAFKA_SASL_PASSWORD is sasl.password."""
    return KafkaSettings({**from_environment(environment), **(given or {})})


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT) and name != ENVIRONMENT
    }


def from_lines(lines: Iterable[str], path: str) -> dict[str, str]:
    """The settings in the lines of a properties file: `name=value`, `#` for comments. Raises ConfigError
    with the number of a line that is neither."""
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{path}, line {number}: expected name=value")
        settings[name.strip()] = value.strip()
    return settings


def from_file(path: str) -> dict[str, str]:
    """The settings of a properties file. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            return from_lines(file, path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: this is not UTF-8 text") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
