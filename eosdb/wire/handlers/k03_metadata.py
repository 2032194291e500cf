"""Metadata: the cluster and its topics.

Version 1: null asks for all topics, an empty list for none; 2: the cluster's id; 4: the client may forbid
the creation of topics; 5: offline replicas; 7: the leader's epoch; 8: authorized operations (KIP-430),
until 10 also of the cluster; 9: flexible; 10: the ids of topics (KIP-516); 12: requests by these ids; 13:
an error code for the whole answer (KIP-1102).
"""

from __future__ import annotations

from uuid import UUID

from kafka.protocol.metadata.metadata import MetadataRequest

from eosdb.coordinator.authorizer import CLUSTER
from eosdb.errors import EosdbError, InvalidRequestError, TopicAuthorizationFailedError
from eosdb.log.topics import unknown_id
from eosdb.model import requests
from eosdb.model.values import TopicMetadata
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import NONE, reading_code_of
from eosdb.wire.session import NO_TOPIC, NODE_ID


@serves(MetadataRequest, 0, 13)
def metadata(session: Session, request: MetadataRequest, version: int) -> Fields:
    """All topics, or the requested ones. Missing ones are created if the broker's and the request's
    settings allow it."""
    may = request.include_topic_authorized_operations
    if request.topics is None or (version == 0 and not request.topics):
        topics = [
            _described(session, topic, may)
            for topic in session.broker.ask(requests.TopicMetadata())
        ]
    else:
        requested = [(topic.name, topic.topic_id) for topic in request.topics]
        # As in Kafka, a single topic id makes the whole request fail before version 12.
        by_name = all(name is not None and not topic_id for name, topic_id in requested)
        if version >= 12 or by_name:
            may_create = request.allow_auto_topic_creation
            found = [_asked(session, *topic, may_create, may) for topic in dict.fromkeys(requested)]
            # A topic that is requested by its name and its id is answered once.
            topics = list(
                {(t["topic_id"], t["error_code"] and t["name"]): t for t in found}.values()
            )
        else:
            topics = [_not_found(*topic, InvalidRequestError.code) for topic in requested]
    of_cluster = request.include_cluster_authorized_operations
    return {
        "brokers": [{"node_id": NODE_ID, "host": session.host, "port": session.port}],
        "cluster_id": session.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
        "authorized_operations": session.operations(of_cluster, "cluster", CLUSTER),
    }


def led_here(index: int, leader_epoch: int) -> Fields:
    """The fields of a partition: the one broker leads it, and is its only replica."""
    return {  # All fields, because kafka-python fills in defaults slowly.
        "error_code": NONE, "partition_index": index, "leader_id": NODE_ID, "leader_epoch": leader_epoch,
        "replica_nodes": [NODE_ID], "isr_nodes": [NODE_ID], "offline_replicas": [],
    }  # fmt: skip


def _asked(
    session: Session, name: str | None, topic_id: UUID | None, may_create: bool, may: bool
) -> Fields:
    """Describe the requested topic. Its id, if given, takes precedence over its name."""
    by_id = topic_id is not None
    try:
        if topic_id is not None:
            name = session.broker.ask(requests.TopicNames()).get(topic_id)
            if name is None:
                raise unknown_id(topic_id)
        topic = session.broker.ask(requests.Topic(name or "", may_create=may_create and not by_id))
        return _described(session, topic, may)
    except EosdbError as error:
        may_see = may and not isinstance(error, TopicAuthorizationFailedError)
        return {
            **_not_found(name, topic_id, reading_code_of(error)),
            # A client that asks by id must not learn the name.
            "name": None if by_id else name or "",
            "authorized_operations": session.operations(may_see, "topic", name or ""),
        }


def _not_found(name: str | None, topic_id: UUID | None, code: int) -> Fields:
    return {"error_code": code, "name": name or "", "topic_id": topic_id or NO_TOPIC}


def _described(session: Session, topic: TopicMetadata, may: bool) -> Fields:
    epoch = session.leader_epoch()
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [led_here(index, epoch) for index in range(topic.partitions)],
        "authorized_operations": session.operations(may, "topic", topic.name),
    }
