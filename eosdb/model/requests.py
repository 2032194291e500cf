"""The requests of a broker as values: clients send them, the server builds them from bytes, `Broker.ask`
carries them out (decisions/0081).

Each class has Kafka's name, fields and defaults, and declares the type of its answer. `db.broker` has a
method of the same name, with the fields as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Generic, Protocol, TypeVar
from uuid import UUID

from eosdb.errors import ApiError
from eosdb.model import fetched, reports, values
from eosdb.model.fetched import Block, FetchResult
from eosdb.model.topic_config import ConfigChange
from eosdb.model.values import (
    ConsumerGroupMetadata,
    IsolationLevel,
    OffsetAndMetadata,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    TopicPartition,
)

A = TypeVar("A", covariant=True)
OffsetErrors = dict[TopicPartition, ApiError | None]
"""For each partition None, or the error that refused its offset."""
_WORD: re.Pattern[str] = re.compile("(?<!^)(?=[A-Z])")


def snake_case(name: str) -> str:
    return _WORD.sub("_", name).lower()


class Request(Generic[A]):
    """A request with an answer of type A."""

    __slots__ = ()
    name: ClassVar[str]
    """Kafka's name of the API in snake_case, for metrics, faults and `db.broker`."""

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name or cls.__dict__.get("name") or snake_case(cls.__name__)


class Question(Request[A]):
    """A request without an equivalent in Kafka's protocol. Metrics do not count it."""

    __slots__ = ()


class AnyBroker(Protocol):
    @property
    def transaction_version(self) -> int:
        """The highest transaction version that the broker supports."""

    def ask(self, request: Request[A]) -> A:
        """Carry out a request, and return its answer. Raises EosdbError."""


# -- producers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerId(Request[ProducerIdAndEpoch]):
    """A new producer id, or for a transactional id its producer id with the next epoch (KIP-98, KIP-360).

    Raises ConcurrentTransactionsError if it had to abort an open transaction first: call it again.
    Raises ProducerFencedError, InvalidTransactionTimeoutError, InvalidRequestError and the
    authorization errors.
    """

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn(Request[None]):
    """Add partitions to the transaction, which begins if none is open. Adds all of them or none.

    Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError,
    UnknownTopicOrPartitionError and the authorization errors.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Iterable[TopicPartition]


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn(Request[None]):
    """Add the group's offsets to the transaction. Raises the same errors as add_partitions_to_txn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class Produce(Request[dict[TopicPartition, ProduceResult]]):
    """Append one batch to each partition, all in one unit; each partition has a result or an error.

    A batch that is already stored has its original offset and `duplicate=True`. Under transaction version
    2 a transactional batch adds its partition to the transaction, which begins if none is open (KIP-890).
    `transaction_version` is the client's, None the highest supported. A topic whose current id differs
    from that in `topic_ids` gets UnknownTopicIdError.
    """

    batches: Mapping[TopicPartition, RecordBatch]
    _: KW_ONLY
    transactional_id: str | None = None
    acks: int | str = -1
    timeout_ms: int = 30_000
    transaction_version: int | None = None
    topic_ids: Mapping[str, UUID] | None = None


@dataclass(frozen=True, slots=True)
class EndTxn(Request[ProducerIdAndEpoch]):
    """Commit or abort the transaction. The outcome is final when this returns; if it raises, the
    transaction may be decided nevertheless. Returns the producer id and epoch to use next: under
    transaction version 2 the next epoch. Raises InvalidTxnStateError, ProducerFencedError,
    InvalidProducerIdMappingError, ConcurrentTransactionsError, TransactionCoordinatorFencedError and
    TransactionalIdAuthorizationFailedError."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    _: KW_ONLY
    transaction_version: int | None = None


# -- offsets of groups --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit(Request[OffsetErrors]):
    """Commit offsets of the group: all of them or none. With `each`, partitions are independent, as in
    Kafka. The answer has None for each partition; with `each`, it may have an error instead. Raises the
    errors of `Broker.offset_commit`."""

    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit(Request[OffsetErrors]):
    """Make offsets part of the transaction: they become the group's when it commits. Adds all of them or
    none; with `each`, partitions are independent (see OffsetCommit). Raises the errors of
    `Broker.txn_offset_commit`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    transaction_version: int | None = None
    each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch(Request[dict[TopicPartition, OffsetAndMetadata | ApiError]]):
    """The group's committed offsets. Partitions without an offset are absent.

    The answer has TopicAuthorizationFailedError for a partition that the principal may not describe; if
    `partitions` is None, it omits these. With `require_stable`, it has UnstableOffsetCommitError for a
    partition with a pending offset of an open transaction.

    A member of a group whose partitions the coordinator assigns passes its id and epoch. Raises
    UnknownMemberIdError, StaleMemberEpochError, and IllegalGenerationError for a classic member.
    """

    group_id: str
    partitions: Iterable[TopicPartition] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetDelete(Request[OffsetErrors | None]):
    """Delete offsets of the group, including pending ones: all of them or none. With `each`, partitions are
    independent, and the answer has for each None or its error. Raises GroupIdNotFoundError,
    InvalidGroupIdError, GroupSubscribedToTopicError while a member is subscribed to one of the topics, and
    NonEmptyGroupError while the group has members that are not consumers."""

    group_id: str
    partitions: Iterable[TopicPartition]
    _: KW_ONLY
    each: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup(Request[None]):
    """Delete the group and all its offsets. Raises GroupIdNotFoundError, NonEmptyGroupError."""

    group_id: str


# -- readers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetching(Request[A]):
    """The fields of all fetch requests: the range and the amount to read."""

    topic_partition: TopicPartition
    offset: int
    _: KW_ONLY
    isolation_level: IsolationLevel = "read_uncommitted"
    max_records: int = 500
    max_bytes: int = 52_428_800
    check_crcs: bool = True
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Fetch(Fetching[FetchResult]):
    """Records from `offset` on, control records and aborted data included.

    Under read_committed they end at the last stable offset, and `aborted_transactions` lists the
    transactions to filter out. At least one record is returned if there is one. Raises
    OffsetOutOfRangeError, UnknownTopicOrPartitionError, TopicAuthorizationFailedError, UnknownTopicIdError
    if the topic's id is not `topic_id` and, unless `check_crcs` is False, CorruptRecordError if the first
    record fails its checksum.
    """


@dataclass(frozen=True, slots=True)
class FetchBatches(Fetching[Block], name="fetch"):
    """The records of `fetch`, for servers: as record batches of at most `max_bytes` if the accelerator can
    build them, otherwise as columns."""


@dataclass(frozen=True, slots=True)
class FetchData(Fetching[Block], name="fetch"):
    """The records of `fetch` as columns, for consumers and other callers with very many records: without
    control records and, under read_committed, without aborted data.

    Omitted records count towards `max_records`. So the result may have fewer records, even none, although
    more follow at `stop`.
    """


@dataclass(frozen=True, slots=True)
class ListOffsets(Request[values.OffsetAndTimestamp]):
    """The first offset at or after a time (ms), or EARLIEST, LATEST, MAX_TIMESTAMP. Raises
    InvalidRequestError, UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""

    topic_partition: TopicPartition
    timestamp: int
    _: KW_ONLY
    isolation_level: IsolationLevel = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Offsets(Question[values.PartitionOffsets]):
    """The log start, high watermark and last stable offset. Raises UnknownTopicOrPartitionError and
    TopicAuthorizationFailedError."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderEpochs(Question[fetched.LeaderEpochs]):
    """The leader epochs of a partition; None: only the current one. Raises the errors of Offsets."""

    topic_partition: TopicPartition | None = None


@dataclass(frozen=True, slots=True)
class Lag(Question[reports.Lag]):
    """How many records a reader at `offset` can get now, how many more the last stable offset holds
    back, and how many offsets are markers or aborted data. Raises InvalidRequestError,
    UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""

    topic_partition: TopicPartition
    offset: int
    _: KW_ONLY
    isolation_level: IsolationLevel = "read_committed"


@dataclass(frozen=True, slots=True)
class Idle(Question[dict[TopicPartition, values.PartitionOffsets]]):
    """The partitions with nothing to read at these positions, with their offsets. Partitions that may not
    or cannot be read are absent: `fetch` raises the reason."""

    positions: Mapping[TopicPartition, int]
    isolation_level: IsolationLevel


@dataclass(frozen=True, slots=True)
class TopicPartitions(Question[dict[str, int]]):
    """The topics of these names (None: all) that the principal may describe, with their numbers of
    partitions. `every` is for requests that need a right on the cluster only: all topics."""

    names: Collection[str] | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class TopicNames(Question[dict[UUID, str]]):
    """The names of all topics by id. Checks no rights, since the request that uses them does."""


@dataclass(frozen=True, slots=True)
class TopicMetadata(Question[list[values.TopicMetadata]]):
    """The topics of these names (None: all) that the principal may describe, with their ids."""

    names: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterId(Question[str]):
    """The id of the file, which Kafka's clients see as the cluster id."""


@dataclass(frozen=True, slots=True)
class Topic(Question[values.TopicMetadata]):
    """One topic; an absent one is created if `may_create` and auto_create_topics_enable. Raises
    UnknownTopicOrPartitionError, InvalidTopicExceptionError and TopicAuthorizationFailedError."""

    topic: str
    _: KW_ONLY
    may_create: bool = True


@dataclass(frozen=True, slots=True)
class DataVersion(Question[int]):
    """A number that changes with every commit to the file, by any process."""


@dataclass(frozen=True, slots=True)
class WaitForChange(Question[int]):
    """Wait until `data_version` differs from `version`, and return it.

    Returns after `timeout_ms` at the latest, and soon after `cancelled` returns True. Waiting costs
    almost nothing.
    """

    version: int
    timeout_ms: int
    cancelled: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class DeleteRecords(Request[int]):
    """Delete records below an offset (-1: all). Returns the log start offset.

    Raises OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError,
    UnknownTopicIdError if the topic is recreated meanwhile, and TopicAuthorizationFailedError.
    """

    topic_partition: TopicPartition
    before_offset: int


# -- members of groups --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinGroup(Request[values.JoinGroupResult]):
    """Join the group's next generation.

    Without `member_id` the member gets a new id. With `must_know_id` the request raises
    MemberIdRequiredError with the id and the client joins again, so that a lost response leaves no member
    behind (KIP-394). The call does not block: the result is incomplete until the other members have joined;
    repeat the call with the member id. With `waits`, the member's session cannot end before the result is
    complete. Raises InconsistentGroupProtocolError, UnknownMemberIdError, FencedInstanceIdError,
    InvalidSessionTimeoutError, InvalidGroupIdError and GroupAuthorizationFailedError.
    """

    group_id: str
    _: KW_ONLY
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    protocol_type: str = "consumer"
    protocols: Sequence[tuple[str, bytes]] = ()
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    client_host: str = ""
    owner_lock: int = 0
    """The number of its process's presence; 0 if none (decisions/0034)."""
    must_know_id: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroup(Request[values.SyncGroupResult]):
    """Get the member's assignment; the leader passes the assignments of all members.

    The result is incomplete until the leader has synced: repeat the call (`waits`: see join_group).
    Raises IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError,
    InconsistentGroupProtocolError if the protocol is not the generation's, and
    RebalanceInProgressError if the member has to join again.
    """

    group_id: str
    generation_id: int
    member_id: str
    _: KW_ONLY
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes] | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat(Request[None]):
    """Renew the member's session. Raises the same errors as sync_group."""

    group_id: str
    generation_id: int
    member_id: str
    _: KW_ONLY
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup(Request[None]):
    """Remove these members from the group, all of them or none. Raises UnknownMemberIdError."""

    group_id: str
    member_ids: str | Collection[str]


@dataclass(frozen=True, slots=True)
class RemoveMembers(Request[list[ApiError | None]], name="leave_group"):
    """Remove each of these members, named by member id, group instance id, or both. The answer has for each
    member None, UnknownMemberIdError, or FencedInstanceIdError if another member id has its instance id."""

    group_id: str
    members: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class IsWaiting(Question[bool]):
    """Whether the member's join, or with `generation_id` its sync, is still incomplete."""

    group_id: str
    member_id: str
    generation_id: int | None = None


@dataclass(frozen=True, slots=True)
class ListGroups(Question[list[str]]):
    """Every group with members or offsets that the principal may describe. The right to describe the
    cluster includes all groups (KafkaApis.handleListGroupsRequest)."""


@dataclass(frozen=True, slots=True)
class DescribeGroups(Question[list[values.GroupDescription]]):
    """The groups that `list_groups` names, each with its state and members."""


@dataclass(frozen=True, slots=True)
class DescribeGroup(Question[values.GroupDescription]):
    """The group's state, generation and members, without members whose session has ended or whose process
    has died: the next write removes these. Raises GroupIdNotFoundError."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat(Request[values.ConsumerGroupHeartbeat]):
    """Join a group whose partitions the coordinator assigns (KIP-848), stay in it, or leave it. The
    answer has the partitions that the member should own. Fields have Kafka's names and meanings.

    The first heartbeat has `member_epoch` 0, a rebalance timeout, topics or a regular expression, and empty
    `topic_partitions`; later ones omit unchanged fields. With epoch -1 the member leaves; with -2 a static
    member leaves temporarily. Without `member_id` the member gets a new id.

    Raises InvalidRequestError, GroupIdNotFoundError, UnknownMemberIdError, FencedMemberEpochError,
    FencedInstanceIdError, UnreleasedInstanceIdError, UnsupportedAssignorError,
    InvalidRegularExpressionError, GroupMaxSizeReachedError and the authorization errors.
    """

    group_id: str
    _: KW_ONLY
    member_id: str = ""
    member_epoch: int = 0
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Collection[str] | None = None
    subscribed_topic_regex: str | None = None
    """In RE2's syntax; an empty one removes the subscription."""
    server_assignor: str | None = None
    topic_partitions: Mapping[UUID, Collection[int]] | None = None
    """The member's partitions by topic id; None: unchanged."""
    client_id: str = ""
    client_host: str = ""
    owner_lock: int = 0
    """The number of its process's presence; 0 if none (decisions/0034)."""


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup(Request[values.ConsumerGroupDescription]):
    """The group's epochs and members. Raises GroupIdNotFoundError, also for a group of the classic
    protocol, InvalidGroupIdError, and the authorization errors."""

    group_id: str


# -- operators ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AuthorizedOperations(Question[frozenset[str]]):
    """The principal's operations on the topic, group, transactional_id or cluster (KIP-430)."""

    resource_type: str
    resource: str


@dataclass(frozen=True, slots=True)
class AlterTopicConfig(Request[None]):
    """Change some of the topic's own settings; `anew` first removes all of them. Raises InvalidConfigError,
    UnknownTopicOrPartitionError, UnknownTopicIdError if no topic has the id any more, and
    InvalidRequestError for a setting that occurs twice."""

    topic: str
    changes: Sequence[ConfigChange]
    _: KW_ONLY
    anew: bool = False
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class WriteTxnMarkers(Request[None]):
    """Write the markers of one transaction: all partitions are checked before the first marker is
    written.

    For operators, to end a hanging transaction (KIP-664). Under transaction version 2, `producer_epoch`
    is one higher than the epoch of the transaction's batches. Raises InvalidProducerEpochError,
    TransactionCoordinatorFencedError, UnknownTopicOrPartitionError and ClusterAuthorizationFailedError.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: Iterable[TopicPartition]
    coordinator_epoch: int
    _: KW_ONLY
    transaction_version: int | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinator(Request[values.Coordinator]):
    """The coordinator partition of a transactional id or group, and the current coordinator epoch."""

    key: str
    key_type: str = "transaction"


@dataclass(frozen=True, slots=True)
class DescribeProducers(Request[list[values.ProducerState]]):
    """The active producers of a partition (KIP-664). Unlike other read requests, raises
    InvalidTopicExceptionError for an invalid topic name."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class DescribeTransactions(Request[dict[str, values.TransactionDescription]]):
    """The state of each transactional id, without partitions of topics that the principal may not
    describe. Raises TransactionalIdNotFoundError for the first unknown id (KIP-664)."""

    transactional_ids: Collection[str]


@dataclass(frozen=True, slots=True)
class ListTransactions(Request[list[values.TransactionListing]]):
    """List the transactions that match every filter (KIP-664). `duration_ms` selects those open for longer;
    a pattern in RE2's syntax must match the whole id. Raises InvalidRegularExpressionError."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    transactional_id_pattern: str = ""
