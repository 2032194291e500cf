"""The Kafka side of a relay: clients of confluent-kafka with the relay's settings, their errors, and facts
about topics.

Settings are librdkafka's, by its names, from a file or the environment. They may contain passwords, so
they appear in no `repr` and no error, and are not stored.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from eosdb.errors import ConfigError, EosdbError, TopicAlreadyExistsError
from eosdb.integrations.relay import values
from eosdb.integrations.relay.values import InterruptedRelayError
from eosdb.model.config import setting_text
from eosdb.model.notices.catalog import LIBRDKAFKA
from eosdb.model.words import needs_extra

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
    """Checked settings. Raises ConfigError for a setting that would break exactly-once, or that only the
    relay sets."""

    values: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                raise ConfigError(
                    f"Kafka setting {name!r}: expected a librdkafka name and text or a number"
                )
            if name in _REFUSED:
                raise ConfigError(f"Kafka setting {name} may not be given: {_REFUSED[name]}")
        object.__setattr__(
            self, "values", {name: setting_text(v) for name, v in self.values.items()}
        )

    def hide(self, text: str) -> str:
        """Replace values in the text that may be secret."""
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


def from_file(path: str) -> dict[str, str]:
    """Read the settings of a properties file: `name=value`, `#` for comments. Raises ConfigError with the
    number of an invalid line."""
    settings: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if not text or text.startswith(("#", "!")):
                    continue
                name, equals, value = text.partition("=")
                if not equals or not name.strip():
                    raise ConfigError(f"{path}, line {number}: expected name=value")
                settings[name.strip()] = value.strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    return settings


TIMEOUT_S: Final = 15.0
"""The time-out of a request to the cluster (s); afterwards the relay starts a new session."""
_LOCAL_AUTHENTICATION: Final = -169
_NOBODY: Final = (-187, _LOCAL_AUTHENTICATION)  # No broker is reachable.
_ASK_S: Final = 1.0
_TRANSACTION_S: Final = 60.0
"""librdkafka's default transaction.timeout.ms."""
_log: Final = logging.getLogger(LIBRDKAFKA)


class _Details:
    """Passes librdkafka's log lines to a logger at DEBUG; the relay logs their consequences."""

    def log(self, _: int, message: str, *args: object) -> None:
        _log.debug(message, *args)


class KafkaClient:
    """Creates clients, and makes admin requests. Used by one thread."""

    def __init__(self, address: str, settings: KafkaSettings) -> None:
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError as error:
            raise ConfigError(needs_extra("a relay to or from Kafka", "kafka", error)) from None
        self.module: Final[ModuleType] = confluent_kafka
        self._settings: Final = settings
        self.where: Final = address
        self._last: tuple[int, str] | None = None
        self._admin: Any = None

    def producer(self, **fixed: object) -> Any:
        return self._make(self.module.Producer, fixed)

    def consumer(self, **fixed: object) -> Any:
        """Create a read_committed consumer, to which partitions are assigned."""
        own = {
            "group.id": "eosdb-relay",  # librdkafka requires a group; the relay commits nothing to it.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
        }
        return self._make(self.module.Consumer, own | fixed)

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = self._make(self.module.admin.AdminClient, {})
        return self._admin

    def rest(self) -> None:
        """Close connections, and forget errors that librdkafka has reported."""
        self._admin = self._last = None

    def check_connected(self) -> None:
        """Raises InterruptedRelayError if librdkafka has reported that no broker is reachable."""
        if self._last is not None and self._last[0] in _NOBODY:
            code, text = self._last
            raise values.of_kafka(code, self._settings.hide(text), self.where)

    def _make(
        self, kind: Callable[[Mapping[str, object]], Any], fixed: Mapping[str, object]
    ) -> Any:
        config = {"bootstrap.servers": self.where, "error_cb": self.notice, "logger": _Details()}
        try:
            return kind({**config, **self._settings.values, **fixed})
        except (self.module.KafkaException, ValueError, TypeError) as error:
            is_kafkas = isinstance(error, self.module.KafkaException)
            text = self._settings.hide(error.args[0].str() if is_kafkas else str(error))
            raise ConfigError(f"the Kafka client rejects its settings: {text}") from None

    def notice(self, error: Any) -> None:
        """Remember an error that librdkafka reports on its own: it may be the cause of a later time-out."""
        if self._last is None or self._last[0] != _LOCAL_AUTHENTICATION:
            self._last = (error.code(), error.str())

    def meaning(self, error: Any, topic: str | None = None) -> EosdbError:
        """Translate a KafkaError. If it is only a time-out, adds the cause that librdkafka has reported."""
        code, text = error.code(), error.str().strip()
        if not text or text.endswith(":"):  # Brokers may send a code without a text.
            text = f"{text} {error.name()}".strip()
        if self._last is not None and code < 0:
            why, self._last = self._last, None
            text = why[1] if why[1] in text or text in why[1] else f"{text} ({why[1]})"
            code = why[0] if why[0] == _LOCAL_AUTHENTICATION else code
        where = self.where if topic is None else f"{self.where}, topic {topic}"
        return values.of_kafka(code, self._settings.hide(text), where)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """A context that translates the errors of confluent-kafka."""
        try:
            yield
        except self.module.KafkaException as error:
            raise self.meaning(error.args[0]) from None
        except BufferError as error:
            raise InterruptedRelayError(f"{self.where}: {error}") from None

    # -- facts about the cluster ----------------------------------------------------------------------

    def ask(self, request: str, *of: object, **options: object) -> Any:
        """Make this request of the admin client, and return its futures."""
        with self.translating():
            return getattr(self.admin, request)(*of, request_timeout=TIMEOUT_S, **options)

    @property
    def transaction_s(self) -> float:
        """The transaction time-out of the relay's producer."""
        text = self._settings.values.get("transaction.timeout.ms", "")
        return int(text) / 1000 if text.isdigit() else _TRANSACTION_S

    def cluster_id(self) -> str:
        with self.translating():
            cluster = self._metadata().cluster_id
        if not cluster:
            raise InterruptedRelayError(f"{self.where}: the cluster did not return its id")
        return str(cluster)

    def _metadata(self) -> Any:
        """Request the metadata. Waits until the time-out, or until librdkafka reports an error."""
        for _ in range(int(TIMEOUT_S / _ASK_S)):
            try:
                return self.admin.list_topics(timeout=_ASK_S)
            except self.module.KafkaException:
                self.admin.poll(0)
                if self._last is not None:
                    raise
        return self.admin.list_topics(timeout=_ASK_S)

    def partitions(self) -> dict[str, int]:
        with self.translating():
            topics = self._metadata().topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        if not (requested := list(names)):
            return {}
        futures, ids = self.ask("describe_topics", self.module.TopicCollection(requested)), {}
        for name, future in futures.items():
            with contextlib.suppress(InterruptedRelayError), self.translating():
                ids[name] = str(future.result().topic_id)
        return ids

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The settings of topics as ConfigEntry; empty for a topic that the user may not describe."""
        kind = self.module.admin.ConfigResource
        resources = [kind(kind.Type.TOPIC, name) for name in names]
        if not resources:
            return {}
        entries: dict[str, dict[str, Any]] = {}
        for resource, future in self.ask("describe_configs", resources).items():
            try:
                entries[resource.name] = future.result()
            except self.module.KafkaException as error:
                meaning = self.meaning(error.args[0])
                if isinstance(meaning, InterruptedRelayError):
                    raise meaning from None
                entries[resource.name] = {}  # The settings are optional.
        return entries

    def high_watermark(self, topic: str, partition: int) -> int:
        """The high watermark of the partition, which includes records of open transactions."""
        return self._offset(topic, partition, self.module.admin.OffsetSpec.latest())

    def start(self, topic: str, partition: int) -> int:
        """The log start offset of the partition. (A consumer assigned to "the beginning" takes half a
        second to look it up.)"""
        return self._offset(topic, partition, self.module.admin.OffsetSpec.earliest())

    def _offset(self, topic: str, partition: int, spec: object) -> int:
        kafka = self.module
        tp, level = kafka.TopicPartition(topic, partition), kafka.IsolationLevel.READ_UNCOMMITTED
        futures = self.ask("list_offsets", {tp: spec}, isolation_level=level)
        with self.translating():
            result = int(futures[tp].result().offset)
        if result < 0:
            # librdkafka returns a negative offset, without an error, when its connection breaks. As the end
            # of the positions topic, this offset would make the relay start again at the beginning.
            raise InterruptedRelayError(f"{self.where}: the end of {topic}-{partition} is unknown")
        return result

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication factor, unless it exists."""
        new = self.module.admin.NewTopic(
            name, partitions, replication_factor=-1, config=dict(config)
        )
        with contextlib.suppress(TopicAlreadyExistsError), self.translating():
            self.ask("create_topics", [new])[name].result()
