"""Kafka's exactly-once machinery as an embedded, event-sourced database in one SQLite file.

A name is imported from its module when it is first used (PEP 562): decisions/0051.
"""

import sys
from typing import TYPE_CHECKING, Final

from eosdb import errors
from eosdb.errors import *  # noqa: F403
from eosdb.model.old_names import OldNames

# Not lazy: what a program registers for a fork after this import is called before what eosdb does there, so
# a file that it opens in such a function is brought to rest, too.
from eosdb.store.file import forking  # noqa: F401

if TYPE_CHECKING:
    from eosdb.broker.broker import Broker
    from eosdb.broker.outbox import UserTransaction
    from eosdb.client.consumer.consumer import Consumer
    from eosdb.client.processor.dead_letters import DeadLetter, DeadLetters, ReplayReport
    from eosdb.client.processor.failure import Failure
    from eosdb.client.processor.processor import Processor
    from eosdb.client.producer.producer import Producer
    from eosdb.client.producer.sent import SentRecords
    from eosdb.database import Database, connect, process
    from eosdb.events.kinds import Acl
    from eosdb.model.answers import QueryResult, Row
    from eosdb.model.clock import Clock, ManualClock, SystemClock
    from eosdb.model.config import BrokerConfig
    from eosdb.model.fetched import AbortedTransaction, FetchedData, FetchResult, LogRecord
    from eosdb.model.progress import Progress
    from eosdb.model.records.columns import PartitionColumns, PolledColumns
    from eosdb.model.reports import (
        CompactReport,
        Diagnosis,
        GroupPartition,
        GroupReport,
        HangingReason,
        JournalEntry,
        JsonView,
        Lag,
        LoggedBatch,
        OffsetReset,
        OpenTransaction,
        PublishReport,
        SnapshotEntry,
        StoragePart,
        StorageStats,
        TopicStorage,
        ViewDescription,
    )
    from eosdb.model.topic_config import TopicConfig
    from eosdb.model.values import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        AppendOnceResult,
        ConsumerGroupMetadata,
        ConsumerRecord,
        Coordinator,
        GroupDescription,
        GroupMemberDescription,
        GroupState,
        Header,
        HousekeepingReport,
        JoinGroupMember,
        JoinGroupResult,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionOffsets,
        ProduceResult,
        ProducerIdAndEpoch,
        ProducerRecord,
        ProducerState,
        RebuildReport,
        Record,
        RecordBatch,
        RecordMetadata,
        SnapshotInfo,
        SyncGroupResult,
        TimestampType,
        TopicDescription,
        TopicPartition,
        TransactionDescription,
        TransactionListing,
        TransactionState,
        TransactionToken,
        VerifyReport,
    )

__version__ = "0.1.0"

__all__ = [
    "EARLIEST", "LATEST", "MAX_TIMESTAMP", "AbortedTransaction", "Acl", "AppendOnceResult",
    "Broker", "BrokerConfig", "Clock", "CompactReport", "Consumer", "ConsumerGroupMetadata",
    "ConsumerRecord", "Coordinator", "Database", "DeadLetter", "DeadLetters", "Diagnosis", "Failure",
    "FetchResult", "FetchedData",
    "GroupDescription", "GroupMemberDescription", "GroupPartition", "GroupReport", "GroupState",
    "HangingReason", "Header", "HousekeepingReport", "JoinGroupMember", "JoinGroupResult",
    "JournalEntry", "Lag", "LogRecord", "LoggedBatch", "ManualClock", "OffsetAndMetadata",
    "OffsetAndTimestamp", "OffsetReset", "OpenTransaction", "PartitionColumns", "PartitionOffsets",
    "PolledColumns", "Processor",
    "ProduceResult", "Producer", "ProducerIdAndEpoch", "ProducerRecord", "ProducerState",
    "Progress", "PublishReport", "QueryResult", "RebuildReport", "Record", "RecordBatch", "RecordMetadata",
    "ReplayReport", "Row", "SentRecords", "SnapshotEntry", "SnapshotInfo", "StoragePart", "StorageStats",
    "SyncGroupResult", "SystemClock", "TimestampType",
    "TopicConfig", "TopicDescription", "TopicPartition", "TopicStorage",
    "TransactionDescription",
    "TransactionListing", "TransactionState", "TransactionToken", "UserTransaction", "VerifyReport",
    "JsonView", "ViewDescription", "connect", "errors", "process", *errors.__all__,
]  # fmt: skip

_NAMES: Final = {
    "eosdb.broker.broker": "Broker",
    "eosdb.broker.outbox": "UserTransaction",
    "eosdb.client.consumer.consumer": "Consumer",
    "eosdb.client.processor.dead_letters": "DeadLetter DeadLetters ReplayReport",
    "eosdb.client.processor.failure": "Failure",
    "eosdb.client.processor.processor": "Processor",
    "eosdb.client.producer.producer": "Producer",
    "eosdb.client.producer.sent": "SentRecords",
    "eosdb.model.clock": "Clock ManualClock SystemClock",
    "eosdb.model.config": "BrokerConfig",
    "eosdb.database": "Database connect process",
    "eosdb.events.kinds": "Acl",
    "eosdb.model.answers": "QueryResult Row",
    "eosdb.model.records.columns": "PartitionColumns PolledColumns",
    "eosdb.model.fetched": "AbortedTransaction FetchedData FetchResult LogRecord",
    "eosdb.model.reports":
        "CompactReport Diagnosis GroupPartition GroupReport HangingReason JournalEntry JsonView Lag "
        "LoggedBatch OffsetReset OpenTransaction PublishReport SnapshotEntry StoragePart "
        "StorageStats TopicStorage ViewDescription",
    "eosdb.model.values":
        "EARLIEST LATEST MAX_TIMESTAMP AppendOnceResult ConsumerGroupMetadata ConsumerRecord "
        "Coordinator GroupDescription GroupMemberDescription GroupState Header HousekeepingReport "
        "JoinGroupMember JoinGroupResult OffsetAndMetadata OffsetAndTimestamp PartitionOffsets "
        "ProduceResult ProducerIdAndEpoch ProducerRecord ProducerState RebuildReport Record "
        "RecordBatch RecordMetadata SnapshotInfo SyncGroupResult TimestampType TopicDescription "
        "TopicPartition TransactionDescription TransactionListing TransactionState TransactionToken "
        "VerifyReport",
    "eosdb.model.progress": "Progress",
    "eosdb.model.topic_config": "TopicConfig",
}  # fmt: skip
"""The imports above once more, for the interpreter; a test compares them."""
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # It would promise a type checker every name.

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value  # Asked for once.
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.meta_path.insert(0, OldNames())
