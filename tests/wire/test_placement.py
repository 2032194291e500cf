"""Elections, reassignments, folders, features and the quorum: as a single Kafka 4.4.0 broker answers."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin.cluster import (
    AlterReplicaLogDirsRequest,
    DescribeQuorumRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

import eosdb
from eosdb.admin.tools import Tools
from tests.cases import each
from tests.wire.peer import Peer, asking

NONE, UNKNOWN, BAD_ASSIGNMENT, BAD_REQUEST, NO_SUCH_FOLDER = 0, 3, 39, 42, 57
NOT_NEEDED, NOT_MOVING, BAD_LEVEL = 84, 85, 95


@each("version", range(3))
def test_an_election_is_not_needed(peer: Peer, version: int) -> None:
    def elected(*asked: tuple[str, list[int]], kind: int = 0) -> dict[str, list[int]]:
        topics = [{"topic": t, "partitions": p} for t, p in asked]
        request = asking(ElectLeadersRequest, election_type=kind, topic_partitions=topics or None)
        answer = peer.ask(request, version)
        if version >= 1:
            assert answer.error_code == (NONE if kind < 2 else BAD_REQUEST)
        return {
            one.topic: [part.error_code for part in one.partition_result]
            for one in answer.replica_election_results
        }

    assert elected(("t", [0, 9]), ("none", [0])) == {"t": [NOT_NEEDED, UNKNOWN], "none": [UNKNOWN]}
    assert elected() == {"t": []}
    if version >= 1:
        assert elected(("t", [1]), kind=1) == {"t": [NOT_NEEDED]}
        assert elected(("t", [1, 9]), kind=2) == {"t": [BAD_REQUEST, BAD_REQUEST]}


@each("version", range(2))
def test_a_partition_can_be_assigned_to_the_one_broker(peer: Peer, version: int) -> None:

    def reassigned(name: str, *assignments: list[int] | None) -> list[int]:
        partitions = [
            {"partition_index": index, "replicas": replicas}
            for index, replicas in enumerate(assignments)
        ]
        request = asking(
            AlterPartitionReassignmentsRequest,
            topics=[{"name": name, "partitions": partitions}],
            allow_replication_factor_change=False,
        )
        answer = peer.ask(request, version)
        assert answer.error_code == NONE
        if version >= 1:
            assert not answer.allow_replication_factor_change
        return [part.error_code for part in answer.responses[0].partitions]

    assert reassigned("t", [1], [2], [1]) == [NONE, BAD_ASSIGNMENT, UNKNOWN]
    assert reassigned("t", [], [1, 1]) == [BAD_ASSIGNMENT, BAD_ASSIGNMENT]
    assert reassigned("t", None, [-1]) == [NOT_MOVING, BAD_ASSIGNMENT]
    assert reassigned("none", [1], None) == [UNKNOWN, UNKNOWN]
    moves = peer.ask(ListPartitionReassignmentsRequest(timeout_ms=1, topics=None), 0)
    assert (moves.error_code, moves.topics) == (NONE, [])


@each("version", range(1, 3))
def test_a_replica_can_be_moved_to_the_folder_of_the_file(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    def moved(path: str) -> list[int]:
        topic = {"name": "t", "partitions": [0, 9]}
        request = asking(AlterReplicaLogDirsRequest, dirs=[{"path": path, "topics": [topic]}])
        (answer,) = peer.ask(request, version).results
        return [part.error_code for part in answer.partitions]

    assert moved(Tools(db.admin).log_directory().path) == [NONE, UNKNOWN]
    assert moved("/nowhere") == [NO_SUCH_FOLDER, NO_SUCH_FOLDER]


@pytest.mark.slow
@each(("name", "level", "kind", "code"), [
        ("transaction.version", 2, 1, NONE), ("transaction.version", 2, 2, NONE),
        ("transaction.version", 1, 1, BAD_LEVEL), ("transaction.version", 3, 1, BAD_LEVEL),
        ("transaction.version", 1, 2, BAD_LEVEL),  # The file was opened with another.
        ("transaction.version", -1, 3, BAD_LEVEL), ("transaction.version", 2, 0, BAD_LEVEL),
        ("nonsense", 1, 1, BAD_LEVEL), ("nonsense", 0, 2, BAD_LEVEL),
    ])  # fmt: skip
@each("version", range(3))
def test_a_feature_stays_at_its_level(
    peer: Peer, version: int, name: str, level: int, kind: int, code: int
) -> None:
    def updated(*asked: tuple[str, int, int]) -> tuple[int, list[Any]]:
        updates = [
            {"feature": f, "max_version_level": level, "upgrade_type": k} for f, level, k in asked
        ]
        answer = peer.ask(asking(UpdateFeaturesRequest, feature_updates=updates), version)
        results = [(r.feature, r.error_code) for r in answer.results] if version < 2 else []
        return answer.error_code, results

    if version == 0 and kind == 0:
        code = NONE  # It has no kinds of updates.
    good = ("transaction.version", 2, 1)
    named = [(name, NONE)] if code == NONE and version < 2 else []
    assert updated((name, level, kind)) == (code, named)
    # One that is refused refuses the others.
    assert updated(good, (name, level, kind))[0] == code


@each("version", range(3))
def test_the_broker_is_the_only_voter(db: eosdb.Database, peer: Peer, version: int) -> None:
    def asked(*partitions: tuple[str, int]) -> Any:
        request = asking(
            DescribeQuorumRequest,
            topics=[
                {"topic_name": name, "partitions": [{"partition_index": index}]}
                for name, index in partitions
            ],
        )
        answer = peer.ask(request, version)
        assert answer.error_code == NONE
        return answer

    answer = asked(("__cluster_metadata", 0))
    (described,) = answer.topics[0].partitions
    (voter,) = described.current_voters
    assert (described.error_code, described.leader_id, voter.replica_id) == (NONE, 1, 1)
    assert described.high_watermark == voter.log_end_offset == 1
    assert Tools(db.admin).journal_position() == 1
    assert version < 2 or [node.node_id for node in answer.nodes] == [1]
    for others in ([("t", 0)], [("__cluster_metadata", 1)], [("__cluster_metadata", 0), ("t", 0)]):
        answer = asked(*others)
        assert {topic.partitions[0].error_code for topic in answer.topics} == {UNKNOWN}
        assert version < 2 or answer.nodes == []
