"""Kafka's exactly-once machinery as an embedded, event-sourced database in one SQLite file.

Nothing is imported before its first use (PEP 562). A command pays for what it needs: all of eosdb, with
SQLAlchemy, takes 0.6 s of CPU. And Ctrl-C is handled before the rest of a command is imported (`__main__`).
"""

import os
import sys

import eosdb.system  # noqa: F401  # Raises ImportError on an unsupported system.

TYPE_CHECKING = False  # Importing `typing` would take longer than this whole file.
if TYPE_CHECKING:
    from eosdb import errors as errors
    from eosdb import failpoints as failpoints
    from eosdb.admin.fleet import Fleet as Fleet
    from eosdb.admin.fleet import fleet as fleet
    from eosdb.admin.worries import Worry as Worry
    from eosdb.broker.broker import Broker as Broker
    from eosdb.broker.outbox import UserTransaction as UserTransaction
    from eosdb.broker.outbox import join as join
    from eosdb.client.consumer.consumer import Consumer as Consumer
    from eosdb.client.processor.dead_letters import DeadLetter as DeadLetter
    from eosdb.client.processor.dead_letters import DeadLetters as DeadLetters
    from eosdb.client.processor.dead_letters import ReplayReport as ReplayReport
    from eosdb.client.processor.failure import BatchFailed as BatchFailed
    from eosdb.client.processor.failure import Failure as Failure
    from eosdb.client.processor.failure import RetryAt as RetryAt
    from eosdb.client.processor.processor import Processor as Processor
    from eosdb.client.producer.bulk import SentRecords as SentRecords
    from eosdb.client.producer.producer import Producer as Producer
    from eosdb.database import Database as Database
    from eosdb.database import connect as connect
    from eosdb.database import process as process
    from eosdb.errors import *  # noqa: F403
    from eosdb.events.kinds import Acl as Acl
    from eosdb.model.answers import QueryResult as QueryResult
    from eosdb.model.answers import Row as Row
    from eosdb.model.clock import Clock as Clock
    from eosdb.model.clock import ManualClock as ManualClock
    from eosdb.model.clock import SystemClock as SystemClock
    from eosdb.model.config import BrokerConfig as BrokerConfig
    from eosdb.model.fetched import AbortedTransaction as AbortedTransaction
    from eosdb.model.fetched import Block as Block
    from eosdb.model.fetched import FetchResult as FetchResult
    from eosdb.model.fetched import LogRecord as LogRecord
    from eosdb.model.progress import Progress as Progress
    from eosdb.model.records.columns import PartitionColumns as PartitionColumns
    from eosdb.model.records.columns import PolledColumns as PolledColumns
    from eosdb.model.reports import CompactReport as CompactReport
    from eosdb.model.reports import Diagnosis as Diagnosis
    from eosdb.model.reports import GroupPartition as GroupPartition
    from eosdb.model.reports import GroupReport as GroupReport
    from eosdb.model.reports import HangingReason as HangingReason
    from eosdb.model.reports import JournalEntry as JournalEntry
    from eosdb.model.reports import JsonView as JsonView
    from eosdb.model.reports import Lag as Lag
    from eosdb.model.reports import LoggedBatch as LoggedBatch
    from eosdb.model.reports import OffsetReset as OffsetReset
    from eosdb.model.reports import OpenTransaction as OpenTransaction
    from eosdb.model.reports import ProcessReport as ProcessReport
    from eosdb.model.reports import PublishReport as PublishReport
    from eosdb.model.reports import SnapshotEntry as SnapshotEntry
    from eosdb.model.reports import StoragePart as StoragePart
    from eosdb.model.reports import StorageStats as StorageStats
    from eosdb.model.reports import TopicStorage as TopicStorage
    from eosdb.model.reports import ViewDescription as ViewDescription
    from eosdb.model.topic_config import TopicConfig as TopicConfig
    from eosdb.model.values import EARLIEST as EARLIEST
    from eosdb.model.values import LATEST as LATEST
    from eosdb.model.values import MAX_TIMESTAMP as MAX_TIMESTAMP
    from eosdb.model.values import AppendOnceResult as AppendOnceResult
    from eosdb.model.values import AssignedTopic as AssignedTopic
    from eosdb.model.values import ConsumerGroupDescription as ConsumerGroupDescription
    from eosdb.model.values import ConsumerGroupHeartbeat as ConsumerGroupHeartbeat
    from eosdb.model.values import ConsumerGroupMemberDescription as ConsumerGroupMemberDescription
    from eosdb.model.values import ConsumerGroupMetadata as ConsumerGroupMetadata
    from eosdb.model.values import ConsumerRecord as ConsumerRecord
    from eosdb.model.values import Coordinator as Coordinator
    from eosdb.model.values import GroupDescription as GroupDescription
    from eosdb.model.values import GroupMemberDescription as GroupMemberDescription
    from eosdb.model.values import GroupState as GroupState
    from eosdb.model.values import GroupType as GroupType
    from eosdb.model.values import Header as Header
    from eosdb.model.values import HousekeepingReport as HousekeepingReport
    from eosdb.model.values import JoinGroupMember as JoinGroupMember
    from eosdb.model.values import JoinGroupResult as JoinGroupResult
    from eosdb.model.values import OffsetAndMetadata as OffsetAndMetadata
    from eosdb.model.values import OffsetAndTimestamp as OffsetAndTimestamp
    from eosdb.model.values import PartitionOffsets as PartitionOffsets
    from eosdb.model.values import ProduceResult as ProduceResult
    from eosdb.model.values import ProducerIdAndEpoch as ProducerIdAndEpoch
    from eosdb.model.values import ProducerRecord as ProducerRecord
    from eosdb.model.values import ProducerState as ProducerState
    from eosdb.model.values import RebuildReport as RebuildReport
    from eosdb.model.values import Record as Record
    from eosdb.model.values import RecordBatch as RecordBatch
    from eosdb.model.values import RecordMetadata as RecordMetadata
    from eosdb.model.values import ScheduledRecord as ScheduledRecord
    from eosdb.model.values import SnapshotInfo as SnapshotInfo
    from eosdb.model.values import SyncGroupResult as SyncGroupResult
    from eosdb.model.values import TimestampType as TimestampType
    from eosdb.model.values import TopicDescription as TopicDescription
    from eosdb.model.values import TopicPartition as TopicPartition
    from eosdb.model.values import TransactionDescription as TransactionDescription
    from eosdb.model.values import TransactionListing as TransactionListing
    from eosdb.model.values import TransactionState as TransactionState
    from eosdb.model.values import TransactionToken as TransactionToken
    from eosdb.model.values import VerifyReport as VerifyReport

__version__ = "1.0.0.dev0"

_NAMES = {
    "eosdb.admin.fleet": "Fleet fleet",
    "eosdb.admin.worries": "Worry",
    "eosdb.broker.broker": "Broker",
    "eosdb.broker.outbox": "UserTransaction join",
    "eosdb.client.consumer.consumer": "Consumer",
    "eosdb.client.processor.dead_letters": "DeadLetter DeadLetters ReplayReport",
    "eosdb.client.processor.failure": "BatchFailed Failure RetryAt",
    "eosdb.client.processor.processor": "Processor",
    "eosdb.client.producer.producer": "Producer",
    "eosdb.client.producer.bulk": "SentRecords",
    "eosdb.model.clock": "Clock ManualClock SystemClock",
    "eosdb.model.config": "BrokerConfig",
    "eosdb.database": "Database connect process",
    "eosdb.events.kinds": "Acl",
    "eosdb.model.answers": "QueryResult Row",
    "eosdb.model.records.columns": "PartitionColumns PolledColumns",
    "eosdb.model.fetched": "AbortedTransaction Block FetchResult LogRecord",
    "eosdb.model.reports":
        "CompactReport Diagnosis GroupPartition GroupReport HangingReason JournalEntry JsonView Lag "
        "LoggedBatch OffsetReset OpenTransaction ProcessReport PublishReport SnapshotEntry "
        "StoragePart StorageStats TopicStorage ViewDescription",
    "eosdb.model.values":
        "EARLIEST LATEST MAX_TIMESTAMP AppendOnceResult AssignedTopic ConsumerGroupDescription "
        "ConsumerGroupHeartbeat ConsumerGroupMemberDescription ConsumerGroupMetadata "
        "ConsumerRecord Coordinator GroupDescription GroupMemberDescription GroupState GroupType "
        "Header HousekeepingReport JoinGroupMember JoinGroupResult "
        "OffsetAndMetadata OffsetAndTimestamp PartitionOffsets ProduceResult ProducerIdAndEpoch "
        "ProducerRecord ProducerState RebuildReport Record RecordBatch RecordMetadata "
        "ScheduledRecord SnapshotInfo SyncGroupResult TimestampType TopicDescription TopicPartition "
        "TransactionDescription TransactionListing TransactionState TransactionToken "
        "VerifyReport",
    "eosdb.model.progress": "Progress",
    "eosdb.model.topic_config": "TopicConfig",
}  # fmt: skip
"""The imports above, for the interpreter; a test compares them."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_CAUGHT = (
    "ApiError ConfigError CorruptDatabaseError DatabaseFullError DatabaseLockedError "
    "DatabaseNotFoundError EosdbError HandlerFailedError MessageTooLargeError OffsetOutOfRangeError "
    "ProducerFencedError TopicAlreadyExistsError UnknownTopicOrPartitionError WakeupError"
)
"""The errors that programs catch. The others are here, too, and listed in `eosdb.errors`."""


# Hidden from type checkers: `__getattr__` would make them accept any name.
if not TYPE_CHECKING:
    __all__ = sorted([*_MODULES, *_CAUGHT.split()])

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in ("errors", "failpoints"):
            return import_module(f"eosdb.{name}")
        module = import_module(_MODULES.get(name, "eosdb.errors"))
        if name not in _MODULES and name not in module.__all__:
            told, this = f"module {__name__!r} has no attribute {name!r}", import_module(__name__)
            raise AttributeError(told, name=name, obj=this)  # Python adds: "Did you mean …?"
        globals()[name] = value = getattr(module, name)  # Cached for the next look-up.
        return value

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]


def _at_fork(step: str) -> None:
    """Prepare the open files for a fork, or restore them after it. This hook is registered at the import of
    eosdb: hooks that a program registers later run before it, and may still open a file."""
    forking = sys.modules.get("eosdb.store.file.forking")
    if (call := getattr(forking, step, None)) is not None:
        call()


os.register_at_fork(
    before=lambda: _at_fork("before"),
    after_in_parent=lambda: _at_fork("after_in_parent"),
    after_in_child=lambda: _at_fork("begin_as_a_child"),
)
