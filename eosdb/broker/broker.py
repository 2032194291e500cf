"""`Broker`: carries out requests, by the step for each type (`core.STEPS`). All clients go through it.

`ask` carries out one request, `turn` several in one unit. Each is atomic, and durable (per `durability`)
when it returns. Only a transactional append is not synced by itself: the sync of the Prepare that decides
its transaction covers it. The other methods build a request from their arguments and pass it to `ask`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from eosdb.broker import consumer_groups, group_offsets, membership, produce, reading, transactions
from eosdb.broker.core import STEPS, Core, Write
from eosdb.coordinator.presence import HeldPresence
from eosdb.errors import ApiError, CorruptDatabaseError, CorruptRecordError, EosdbError
from eosdb.model import requests
from eosdb.model.clock import Clock
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import one_line
from eosdb.model.requests import Question, Request
from eosdb.model.threads import Fate
from eosdb.model.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProduceResult,
    RecordBatch,
    TopicPartition,
)

A = TypeVar("A")
P = ParamSpec("P")
ROOMS: Final = (consumer_groups, group_offsets, membership, produce, reading, transactions)
"""The modules with the steps."""


def method_of(kind: Callable[P, Request[A]]) -> Callable[Concatenate[Any, P], A]:
    """Make a method from a type of request. The method's arguments are the request's fields."""

    def method(self: Broker, /, *args: P.args, **kwargs: P.kwargs) -> A:
        return self.ask(kind(*args, **kwargs))

    method.__name__ = requests.snake_case(kind.__name__)
    method.__qualname__ = f"Broker.{method.__name__}"
    method.__doc__ = kind.__doc__
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    fields = inspect.signature(kind).parameters.values()
    method.__signature__ = inspect.Signature([me, *fields])  # type: ignore[attr-defined]
    return method


class Broker:
    """Kafka's requests on one file. Threads may share it."""

    def __init__(self, core: Core) -> None:
        self._core: Final = core

    @property
    def clock(self) -> Clock:
        """The clock that requests take their times from."""
        return self._core.clock

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that this broker supports."""
        return self._core.config.transaction_version

    def ask(self, request: Request[A]) -> A:
        """Carry out a request of `eosdb.model.requests`, and return its answer."""
        core, step = self._core, STEPS[type(request)]
        answer: Any
        if isinstance(request, Question):
            answer = step(core, request)
            return answer  # type: ignore[no-any-return]
        start = core.metrics.now_ns()
        try:
            answer = step(core, request)
            if isinstance(answer, Write):
                write: Write[A] = answer
                if write.alone is not None:
                    answer = write.alone()
                else:
                    answer = core.coordinator.write(write.apply, sync=write.sync)
                    if isinstance(answer, EosdbError):
                        raise answer
                if write.then is not None:
                    write.then(answer)
            return answer  # type: ignore[no-any-return]
        except EosdbError as error:
            self._failed(error)
            raise
        finally:
            self._took(request, start)

    # decisions/0079: a turn joins the group commit like any other write, so threads share its commit.
    def turn(
        self, requests: Sequence[Request[Any]], *, sync: bool, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out requests that write, in order and in one unit: all of them, or none. Returns their
        answers. All requests are prepared before any lock is taken.

        Raises the first error, also the error of a batch. To learn the answer of each request, the caller
        then sends each by itself.
        """
        core = self._core
        start = core.metrics.now_ns()
        try:
            writes: list[Write[Any]] = [STEPS[type(request)](core, request) for request in requests]
            answers = core.coordinator.write(
                lambda unit: [write.apply(unit) for write in writes], sync=sync, fate=fate
            )
        except EosdbError as error:
            self._failed(error)
            raise
        finally:
            for request in requests:
                self._took(request, start)
        for write, answer in zip(writes, answers, strict=True):
            if write.then is not None:
                write.then(answer)
        return answers

    def _took(self, request: Request[Any], start: int) -> None:
        name = request.name
        self._core.metrics.took(f"requests:{name}", f"request-time-ns:{name}", start)

    def _failed(self, error: EosdbError) -> None:
        """Count an error. Damage is logged once, although a consumer meets it again with each poll."""
        self._core.metrics.error(error)
        if isinstance(error, (CorruptDatabaseError, CorruptRecordError)):
            text = one_line(error)
            if text not in self._core.damage:
                self._core.damage.add(text)
                catalog.DAMAGE_FOUND.say(file=self._core.store.path, error=error)

    def presence(self, transactional_id: str | None = None) -> HeldPresence | None:
        """A lock by which other processes notice at once that this one has died: for a consumer that is
        about to join a group, or for the owner of a transactional id. None if no lock is available; then
        a session or time-out has to end first."""
        return membership.presence(self._core, transactional_id)

    # -- producers and transactions -------------------------------------------------------------

    init_producer_id = method_of(requests.InitProducerId)
    add_partitions_to_txn = method_of(requests.AddPartitionsToTxn)
    add_offsets_to_txn = method_of(requests.AddOffsetsToTxn)
    produce = method_of(requests.Produce)
    end_txn = method_of(requests.EndTxn)

    def append(
        self,
        topic_partition: TopicPartition,
        batch: RecordBatch,
        *,
        transactional_id: str | None = None,
        transaction_version: int | None = None,
    ) -> ProduceResult:
        """`produce` for one partition; raises the error that `produce` would return in the result."""
        (result,) = self.produce(
            {topic_partition: batch},
            transactional_id=transactional_id,
            transaction_version=transaction_version,
        ).values()
        if result.error is not None:
            raise result.error
        return result

    # -- offsets of groups ----------------------------------------------------------------------

    offset_delete = method_of(requests.OffsetDelete)
    delete_group = method_of(requests.DeleteGroup)

    def offset_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        """Commit offsets of the group, all of them or none.

        A member passes its member id and its generation, or member epoch; the defaults are for groups
        without members. Raises OffsetOutOfRangeError if the topic's id is not the one in `topic_ids` (it
        was deleted and recreated), UnknownTopicOrPartitionError, OffsetMetadataTooLargeError,
        UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError, FencedInstanceIdError,
        RebalanceInProgressError, GroupIdNotFoundError and the authorization errors.
        """
        group = ConsumerGroupMetadata(
            group_id, generation_id, member_id, group_instance_id, topic_ids or {}
        )
        self.ask(requests.OffsetCommit(group=group, offsets=offsets))

    def txn_offset_commit(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        """Make offsets part of the transaction: they become the group's when it commits. Takes all of them
        or none.

        Under transaction version 2 this also adds the group to the transaction (see `produce`). Raises
        InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError,
        InvalidGroupIdError, GroupIdNotFoundError, IllegalGenerationError, StaleMemberEpochError,
        UnknownMemberIdError, UnknownTopicOrPartitionError, OffsetMetadataTooLargeError and the
        authorization errors.
        """
        self.ask(
            requests.TxnOffsetCommit(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group=ConsumerGroupMetadata(group_id, generation_id, member_id, group_instance_id),
                offsets=offsets,
            )
        )

    def offset_fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are absent. If `partitions` is None, topics
        that the principal may not describe are left out.

        With `require_stable`, raises UnstableOffsetCommitError if an open transaction has a pending offset
        for one of the partitions; raises TopicAuthorizationFailedError.
        """
        fetched = self.ask(
            requests.OffsetFetch(
                group_id=group_id, partitions=partitions, require_stable=require_stable
            )
        )
        offsets = {}
        for tp, answer in fetched.items():
            if isinstance(answer, ApiError):
                raise answer
            offsets[tp] = answer
        return offsets

    # -- readers --------------------------------------------------------------------------------

    fetch = method_of(requests.Fetch)
    fetch_data = method_of(requests.FetchData)
    list_offsets = method_of(requests.ListOffsets)
    offsets = method_of(requests.Offsets)
    lag = method_of(requests.Lag)
    delete_records = method_of(requests.DeleteRecords)
    cluster_id = method_of(requests.ClusterId)
    topic = method_of(requests.Topic)
    topic_metadata = method_of(requests.TopicMetadata)

    def topics(self) -> list[str]:
        """The names of all topics the principal may describe."""
        return list(self.ask(requests.TopicPartitions()))

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has; with auto_create_topics_enable it is created if absent."""
        return self.topic(topic).partitions

    # -- groups ---------------------------------------------------------------------------------

    join_group = method_of(requests.JoinGroup)
    sync_group = method_of(requests.SyncGroup)
    heartbeat = method_of(requests.Heartbeat)
    leave_group = method_of(requests.LeaveGroup)
    list_groups = method_of(requests.ListGroups)
    describe_group = method_of(requests.DescribeGroup)
    describe_groups = method_of(requests.DescribeGroups)
    consumer_group_heartbeat = method_of(requests.ConsumerGroupHeartbeat)
    describe_consumer_group = method_of(requests.DescribeConsumerGroup)

    # -- operators ------------------------------------------------------------------------------

    write_txn_markers = method_of(requests.WriteTxnMarkers)
    find_coordinator = method_of(requests.FindCoordinator)
    describe_producers = method_of(requests.DescribeProducers)
    describe_transactions = method_of(requests.DescribeTransactions)
    list_transactions = method_of(requests.ListTransactions)
