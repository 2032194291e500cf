"""CreateTopics: creates topics, with a result for each.

Version 4: default numbers of partitions and replicas (KIP-464); 5: flexible, and the topic's settings
(KIP-525); 7: its id.

Also has checks that the APIs for topics and settings share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

from kafka.protocol.admin.topics import CreateTopicsRequest

from eosdb import errors
from eosdb.admin import configs
from eosdb.model.notices import catalog
from eosdb.model.topic_config import without_effect
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from eosdb.wire.session import NODE_ID

_UNSET: Final = -1
_Topic = CreateTopicsRequest.CreatableTopic
N = TypeVar("N")
PARTITIONS_AT_ONCE: Final = 10_000
"""The most partitions that CreateTopics or CreatePartitions may add, as in Kafka."""


@serves(CreateTopicsRequest, 2, 7)
def create_topics(session: Session, request: CreateTopicsRequest, _: int) -> Fields:
    # decisions/0031: each partition is a row, so their number in all topics of a request is limited.
    by_default = session.core.config.num_partitions
    count = sum(
        len(t.assignments) or (t.num_partitions if t.num_partitions > 0 else by_default)
        for t in request.topics
    )
    if count > PARTITIONS_AT_ONCE:
        much = errors.PolicyViolationError(
            f"{count} partitions in one request, expected {PARTITIONS_AT_ONCE} at most; send several"
        )
        return {"topics": [{"name": topic.name, "error": much} for topic in request.topics]}
    again = repeated(topic.name for topic in request.topics)
    return {
        "topics": [
            *(
                {"name": topic.name, **attempt(_create, session, topic, request.validate_only)}
                for topic in request.topics
                if topic.name not in again
            ),
            *({"name": name, "error": twice(name)} for name in again),
        ]
    }


def _create(session: Session, topic: _Topic, validate_only: bool) -> Fields:
    partitions, config = _partitions(topic), _config(topic)
    created = session.admin.create_topic(
        topic.name, partitions, config, validate_only=validate_only
    )
    if not validate_only:
        log_without_effect(topic.name, config)
    if not session.may("describe_configs", "topic", topic.name):
        code = errors.TopicAuthorizationFailedError.code
        return {"topic_id": created.topic_id, "topic_config_error_code": code}
    return {
        "topic_id": created.topic_id,
        "num_partitions": created.partitions,
        "replication_factor": 1,
        "configs": [
            {"like": entry, "config_source": entry.source.value}
            for entry in configs.of_topic(session.core.config, config)
        ],
    }


def _config(topic: _Topic) -> dict[str, str]:
    config = {}
    for setting in topic.configs:
        if setting.value is None:
            raise errors.InvalidConfigError(f"{setting.name}: got null, expected a value")
        config[setting.name] = setting.value
    return config


def _partitions(topic: _Topic) -> int | None:
    """The requested number of partitions; None for the broker's default."""
    count = topic.num_partitions
    if topic.assignments:
        if (count, topic.replication_factor) != (_UNSET, _UNSET):
            raise errors.InvalidRequestError(
                f"got {count} partitions with replication factor {topic.replication_factor} and a manual "
                "assignment; expected -1 for both beside an assignment"
            )
        by_partition = {a.partition_index: a.broker_ids for a in topic.assignments}
        given = sorted(assignment.partition_index for assignment in topic.assignments)
        if given != list(range(len(given))):
            raise InvalidReplicaAssignmentError(
                f"an assignment of the partitions {given}: expected each number from 0 on, once"
            )
        check_assignments(by_partition.values(), len(by_partition))
        return len(by_partition)
    if topic.replication_factor not in (_UNSET, 1):
        raise InvalidReplicationFactorError(
            f"replication factor {topic.replication_factor}: there is one broker; expected 1 or -1"
        )
    if count == 0 or count < _UNSET:
        raise errors.InvalidPartitionsError(f"partitions: got {count}, expected at least 1, or -1")
    return None if count == _UNSET else count


def repeated(names: Iterable[N]) -> list[N]:
    return [name for name, count in Counter(names).items() if count > 1]


def twice(name: str) -> errors.InvalidRequestError:
    return errors.InvalidRequestError(f"topic {name!r} is named twice in one request; name it once")


def check_assignments(assignments: Iterable[list[int]], count: int) -> None:
    """Raises InvalidReplicaAssignmentError unless each of `count` partitions is on the one broker."""
    given = list(assignments)
    if any(brokers != [NODE_ID] for brokers in given) or len(given) != count:
        raise InvalidReplicaAssignmentError(
            f"the assignment {given}: expected [{NODE_ID}], the one broker, for each of {count} partitions"
        )


def log_without_effect(topic: str, settings: Iterable[str]) -> None:
    if kept := without_effect(settings):
        catalog.SETTINGS_KEPT.say(topic=topic, settings=list(kept), setting_names=", ".join(kept))
