"""OffsetFetch: the committed offsets of groups, for some partitions or for all.

Version 2: all partitions, and an error code for the whole group; 5: the leader's epoch; 6: flexible; 7:
waits for transactions (KIP-447); 8: several groups (KIP-709); 9: the requesting member and its epoch
(KIP-848); 10: topics by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.protocol.consumer.group import OffsetFetchRequest

from eosdb.errors import EosdbError
from eosdb.log.topics import unknown_id
from eosdb.model import requests
from eosdb.model.requests import OffsetFetch
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.wire import apis
from eosdb.wire.errors import coordinator_code_of

_NO_OFFSET: Final = OffsetAndMetadata(-1, "", -1)


@apis.serves(OffsetFetchRequest, 1, 10, coordinator_code_of)
def offset_fetch(session: apis.Session, request: OffsetFetchRequest, version: int) -> apis.Fields:
    stable = request.require_stable
    if version >= 10:
        return _by_id(session, request, stable)
    if version >= 8:
        return {"groups": [_fetched(session, g, g.topics, stable) for g in request.groups]}
    fetched = _fetched(session, request, request.topics, stable)
    error = fetched["error"]
    if error is not None and version < 2:  # Version 1 has no error code for the whole group.
        none = {"committed_offset": -1}
        return {"topics": apis.per_partition(request.topics or (), lambda *_: error, none)}
    return {"error": error, "topics": fetched["topics"]}


def _by_id(session: apis.Session, request: OffsetFetchRequest, stable: bool) -> apis.Fields:
    """The offsets of several groups, with the ids of topics beside their names."""
    names = session.broker.ask(requests.TopicNames())
    ids = {name: topic_id for topic_id, name in names.items()}
    groups, known = [], set()
    for asked in request.groups:
        apis.name_by_id(asked.topics or (), names)
        named = asked.topics and [topic for topic in asked.topics if topic.name is not None]
        group = _fetched(session, asked, named, stable)
        # Topics without an entry in `ids` were created later; the next request returns them.
        topics = [{**t, "topic_id": ids[t["name"]]} for t in group["topics"] if t["name"] in ids]
        known |= {topic["topic_id"] for topic in topics}
        if group["error"] is None:
            topics += [_unknown(t) for t in asked.topics or () if t.name is None]
        groups.append({**group, "topics": topics})
    # Ids are never reused: if an id still exists, the offsets just read belong to it.
    if not known <= session.broker.ask(requests.TopicNames()).keys():
        return _by_id(session, request, stable)
    return {"groups": groups}


def _unknown(topic: Any) -> apis.Fields:
    """The answer for a topic whose id is unknown."""
    error = unknown_id(topic.topic_id)
    return {
        "topic_id": topic.topic_id,
        "partitions": [_offset(index, error) for index in topic.partition_indexes],
    }


def _fetched(
    session: apis.Session, asked: Any, topics: Iterable[Any] | None, stable: bool
) -> apis.Fields:
    """The committed offsets of a group, as answer fields; if `topics` is None, all of them."""
    requested = None if topics is None else [tp for tp, _ in apis.partitions_of(topics)]
    try:
        found = session.broker.ask(
            apis.asked(OffsetFetch, asked, partitions=requested, require_stable=stable)
        )
    except EosdbError as error:
        return {"group_id": asked.group_id, "error": error, "topics": []}
    tps = found if requested is None else requested
    return {
        "group_id": asked.group_id,
        "error": None,
        "topics": [
            {
                "name": name,
                "partitions": [
                    _offset(index, found.get(TopicPartition(name, index), _NO_OFFSET))
                    for index in indexes
                ],
            }
            for name, indexes in apis.by_topic(tps).items()
        ],
    }


def _offset(index: int, found: OffsetAndMetadata | EosdbError) -> apis.Fields:
    error, found = (found, _NO_OFFSET) if isinstance(found, EosdbError) else (None, found)
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error": error,
    }
