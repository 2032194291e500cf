"""Requests that no well-behaved client sends, and that must be refused: each would break a promise, in the
name of a client that is allowed to send other requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from eosdb.errors import EosdbError
from eosdb.model.requests import (
    EndTxn,
    InitProducerId,
    Produce,
    Request,
    TxnOffsetCommit,
    WriteTxnMarkers,
)
from eosdb.model.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.testing.simulation.model import INPUT, MEMBERS, PartitionModel, Row, Violation
from eosdb.testing.simulation.world import World

_RECENT: Final = 8
Stranger = Callable[[World, random.Random, int], None]


def contradicts_its_end(world: World, rng: random.Random, node: int) -> None:
    """End a transaction that has ended the other way. (Under version 1 this may reach the next
    transaction.)"""
    ended = list(world.checker.outcomes.items())[-_RECENT:]
    if not ended or world.config.transaction_version == 1:
        return
    key, outcome = rng.choice(ended)
    token = world.ledger.transactions[key].token
    _must_be_refused(
        f"{key} is {outcome}; the opposite",
        world,
        node,
        EndTxn(
            token.transactional_id, token.producer_id, token.producer_epoch, outcome != "COMMIT"
        ),
    )


def writes_markers_under_an_old_epoch(world: World, rng: random.Random, node: int) -> None:
    """As a coordinator that has been replaced, write markers for a producer's open or next transaction."""
    tp = rng.choice(list(world.checker.partitions))
    producers = world.nodes[node].broker.describe_producers(tp)
    ruled = [p for p in producers if p.coordinator_epoch > 0][-_RECENT:]
    if not ruled:
        return
    fenced = rng.choice(ruled)
    epoch = fenced.producer_epoch + (world.config.transaction_version > 1)
    _must_be_refused(
        f"{tp} has seen coordinator epoch {fenced.coordinator_epoch} of producer {fenced.producer_id}; "
        "an older one's marker",
        world,
        node,
        WriteTxnMarkers(
            fenced.producer_id, epoch, rng.random() < 0.5, [tp], fenced.coordinator_epoch - 1
        ),
    )


def repeats_with_more(world: World, rng: random.Random, node: int) -> None:
    """Send a stored batch again with one record more."""
    tp = rng.choice(list(world.checker.partitions))
    batch = _some_batch(world.checker.partitions[tp], rng)
    by_id = {p.producer_id: p for p in world.nodes[node].broker.describe_producers(tp)}
    if batch is None or batch[0].producer_id not in by_id:
        return
    first = batch[0]
    values = [row.value for row in batch] + [b"a stranger's|-|0"]
    repeat = RecordBatch(
        [Record(value=value) for value in values],
        first.producer_id, first.producer_epoch, first.sequence,
    )  # fmt: skip
    _must_be_refused(
        f"{tp} stores {len(batch)} records from sequence {first.sequence} on; {len(values)} of them",
        world,
        node,
        Produce({tp: repeat}),
    )


def commits_for_an_old_generation(world: World, rng: random.Random, node: int) -> None:
    """As a member that missed a rebalance, send offsets to a transaction (KIP-447)."""
    try:
        group = world.nodes[node].broker.describe_group(MEMBERS)
        me = world.ask(node, InitProducerId("stranger"))
    except EosdbError:
        return
    if not group.members or world.config.transaction_version == 1:
        return
    member_id = rng.choice(group.members).member_id
    # The description already shows what the next write will carry out.
    generation = dict(world.checker.beliefs.members).get(member_id)
    if generation is None:
        return
    _must_be_refused(
        f"{member_id} of {MEMBERS} is at generation {generation}; an offset of the one before",
        world,
        node,
        TxnOffsetCommit(
            transactional_id="stranger",
            producer_id=me.producer_id,
            producer_epoch=me.producer_epoch,
            group=ConsumerGroupMetadata(MEMBERS, generation - 1, member_id),
            offsets={TopicPartition(INPUT, 0): OffsetAndMetadata(0)},
        ),
    )


STRANGERS: Final[tuple[Stranger, ...]] = (
    contradicts_its_end,
    writes_markers_under_an_old_epoch,
    repeats_with_more,
    commits_for_an_old_generation,
)


def _must_be_refused(what: str, world: World, node: int, request: Request[object]) -> None:
    try:
        answer = world.ask(node, request)
    except EosdbError:
        is_refused = True
    else:
        results = answer.values() if isinstance(answer, dict) else [answer]
        is_refused = any(getattr(result, "error", None) is not None for result in results)
    if not is_refused:
        raise Violation(f"{what} is answered with success")
    world.counts[f"a stranger's {request.name}"] += 1


def _some_batch(model: PartitionModel, rng: random.Random) -> list[Row] | None:
    """One of the newest batches outside of transactions: its rows share a journal position."""
    recent = [r for r in model.rows[-40:] if r.producer_id >= 0 and not r.is_transactional]
    if not recent:
        return None
    position = rng.choice(recent).position
    return [row for row in model.rows if row.position == position]
