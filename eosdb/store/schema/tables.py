"""The tables as they are now, in SQLAlchemy Core.

What makes and upgrades a file are the revisions in `migrations`; a test compares the two as SQLite
sees them. Whoever puts queries together with SQLAlchemy, on `Database.engine`, finds the tables here;
`newest_schema` says which of them are events and which are folded from events.

64-bit integers are declared INT, because Spark's JDBC reader takes INTEGER for 32 bits and wraps.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BLOB, INTEGER, TEXT, Column, MetaData, Table
from sqlalchemy.types import UserDefinedType


class INT(UserDefinedType[int]):
    """A 64-bit integer that JDBC readers take for one."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "INT"


metadata: Final = MetaData()


def _table(name: str, primary_key: str, columns: str, *, rowid: bool = False) -> Table:
    """A STRICT table; `columns` are words `name:type`, INT where no type is given, `?` for NULL."""
    keys = primary_key.split()
    made: list[Column[Any]] = []
    for word in columns.split():
        column, _, type_name = word.partition(":")
        made.append(
            Column(
                column.rstrip("?"),
                _TYPES[type_name or "int"](),
                primary_key=column in keys,
                nullable=column.endswith("?"),
                autoincrement=False,
            )
        )
    return Table(name, metadata, *made, sqlite_strict=True, sqlite_with_rowid=rowid)


_TYPES: Final[dict[str, Any]] = {"int": INT, "rowid": INTEGER, "text": TEXT, "blob": BLOB}

journal: Final = _table(
    "journal",
    "position",
    "position kind:text timestamp topic?:text partition? transactional_id?:text detail:text "
    "checksum?",
)
records: Final = _table(
    "records",
    "",
    "partition_id offset timestamp timestamp_type key?:blob value?:blob headers?:text producer_id "
    "producer_epoch sequence sequence_round is_transactional control?:text position checksum?",
    rowid=True,
)
group_sessions: Final = _table(
    "group_sessions", "group_id member_id", "group_id:text member_id:text expires checksum?"
)

counters: Final = _table("counters", "name", "name:text value")
topics: Final = _table(
    "topics",
    "topic_id",
    "topic_id:rowid topic:text partitions config:text created_time",
    rowid=True,
)
partitions: Final = _table(
    "partitions",
    "partition_id",
    "partition_id:rowid topic_id topic:text partition log_start_offset log_end_offset "
    "last_stable_offset first_unstable_offset size_bytes max_timestamp max_timestamp_offset "
    "indexed_timestamp bytes_since_index clean_offset snapshot_offset "
    "last_aborted_offset checked_from checksum",
    rowid=True,
)
partition_producers: Final = _table(
    "partition_producers",
    "partition_id producer_id",
    "partition_id producer_id producer_epoch coordinator_epoch last_sequence last_offset "
    "last_timestamp last_append_time current_txn_start_offset batches:text",
)
transaction_index: Final = _table(
    "transaction_index",
    "partition_id last_offset",
    "partition_id producer_id first_offset last_offset last_stable_offset previous_offset checksum",
)
time_index: Final = _table("time_index", "partition_id timestamp", "partition_id timestamp offset")
delete_horizons: Final = _table(
    "delete_horizons", "partition_id offset", "partition_id offset since"
)
snapshots: Final = _table(
    "snapshots", "partition_id snapshot_offset", "partition_id snapshot_offset taken_time"
)
snapshot_entries: Final = _table(
    "snapshot_entries",
    "partition_id snapshot_offset producer_id",
    "partition_id snapshot_offset producer_id producer_epoch first_sequence last_sequence "
    "last_offset offset_delta timestamp coordinator_epoch current_txn_first_offset",
)
producer_ids: Final = _table(
    "producer_ids", "producer_id", "producer_id:rowid transactional_id:text", rowid=True
)
transactional_ids: Final = _table(
    "transactional_ids",
    "transactional_id",
    "transactional_id:text producer_id producer_epoch last_producer_epoch previous_producer_id "
    "state:text timeout_ms start_time last_update_time partitions:text groups:text "
    "next_producer_id transaction_version",
)
group_offsets: Final = _table(
    "group_offsets",
    "group_id topic partition",
    "group_id:text topic:text partition committed_offset leader_epoch metadata:text "
    "commit_timestamp commit_position retain_from?",
)
pending_group_offsets: Final = _table(
    "pending_group_offsets",
    "producer_id group_id topic partition",
    "producer_id group_id:text topic:text partition producer_epoch offset leader_epoch "
    "metadata:text commit_timestamp commit_position",
)
groups: Final = _table(
    "groups",
    "group_id",
    "group_id:text state:text protocol_type:text protocol_name?:text generation_id leader?:text "
    "members:text deadline",
)
acls: Final = _table(
    "acls",
    "principal operation resource_type resource_name pattern_type permission",
    "principal:text operation:text resource_type:text resource_name:text pattern_type:text "
    "permission:text",
)
idempotency_keys: Final = _table(
    "eosdb_idempotency_keys",
    "topic idempotency_key",
    "topic:text idempotency_key:text partition offset timestamp",
)
sinks: Final = _table("eosdb_sinks", "sink_id", "sink_id:text batch_id timestamp")
sink_batches: Final = _table(
    "eosdb_sink_batches", "sink_id batch_id", "sink_id:text batch_id held:text"
)
json_views: Final = _table(
    "eosdb_json_views", "name", "name:text topic:text columns:text created_time"
)
file: Final = _table("eosdb_file", "file_id", "file_id:text checksum?")
