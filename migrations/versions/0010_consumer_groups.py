"""Groups whose partitions the coordinator assigns (KIP-848), and the settings of groups.

They share the table of the classic groups, so a group that changes its protocol keeps its row. The table
with the file's id also gets the lowest schema that a reader must know, and the first release with this
schema. The program that upgrades the file writes both, with the row's checksum.

Each row of the baseline gets a checksum, and the baseline their sum, which shows altered and missing rows.
From the event `checked_from` on, all events have checksums. `cleaned_sum` is the sum of the records that
compaction has passed; if it has already passed some, the next pass begins the sum.
"""

from collections.abc import Callable
from zlib import crc32

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ADDED = (
    "group_type TEXT NOT NULL DEFAULT 'classic'",
    "assignment_epoch INT NOT NULL DEFAULT 0",
    "metadata_hash INT NOT NULL DEFAULT 0",
)
COLUMNS = """ (
    group_id TEXT NOT NULL PRIMARY KEY,
    config TEXT NOT NULL
) STRICT, WITHOUT ROWID"""

NEEDS = ("read_version INT NOT NULL DEFAULT 10", "first_release TEXT NOT NULL DEFAULT '1.0'")


BASELINE = """
ALTER TABLE eosdb_baseline ADD COLUMN checked_from INT NOT NULL DEFAULT 1;
ALTER TABLE eosdb_baseline ADD COLUMN rows_sum INT NOT NULL DEFAULT 0;
UPDATE eosdb_baseline SET checked_from = ifnull(
    (SELECT min(position) FROM journal WHERE checksum IS NOT NULL),
    1 + max(position, ifnull((SELECT max(position) FROM journal), 0))
) WHERE EXISTS (SELECT 1 FROM journal);
"""
COPIES = (
    "counters", "topics", "partitions", "partition_producers", "transaction_index", "time_index",
    "delete_horizons", "snapshots", "snapshot_entries", "producer_ids", "transactional_ids",
    "group_offsets", "pending_group_offsets", "acls", "groups", "idempotency_keys", "sinks", "json_views",
    "sink_batches", "scram_credentials", "group_configs",
)  # fmt: skip


def _row_checksum(*columns: object) -> int:
    return crc32("\x1f".join(map(str, columns)).encode("utf-8", "surrogatepass"))


def _with_checksums(table: str) -> int:
    """Set the checksums of all rows. Return their sum, multiplied by the table's factor."""
    execute = op.get_bind().exec_driver_sql
    columns = [name for _, name, *_ in execute(f"PRAGMA table_info({table})") if name != "checksum"]
    others = ", ".join(f'"{name}"' for name in columns)
    execute(f"UPDATE {table} SET checksum = row_checksum({others})")
    checksums = [checksum for (checksum,) in execute(f"SELECT checksum FROM {table}")]
    return sum(checksums) * crc32(table.encode())


def upgrade() -> None:
    driver = op.get_bind().connection.driver_connection
    create_function: Callable[..., None] = driver.create_function  # type: ignore[union-attr]
    create_function("row_checksum", -1, _row_checksum)
    for column in NEEDS:
        op.execute(f"ALTER TABLE eosdb_file ADD COLUMN {column}")
    for table in ("groups", "eosdb_baseline_groups"):
        for column in ADDED:
            op.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    for table in ("eosdb_group_configs", "eosdb_baseline_group_configs"):
        op.execute(f"CREATE TABLE {table}{COLUMNS}")
    for table in ("partitions", "eosdb_baseline_partitions"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN cleaned_sum INT")
        op.execute(f"UPDATE {table} SET cleaned_sum = 0 WHERE clean_offset = 0")
    _with_checksums("partitions")
    for statement in BASELINE.split(";"):
        if statement.strip():
            op.execute(statement)
    total = 0
    for copy in COPIES:
        if copy not in ("partitions", "transaction_index"):
            op.execute(
                f"ALTER TABLE eosdb_baseline_{copy} ADD COLUMN checksum INT NOT NULL DEFAULT 0"
            )
        total += _with_checksums(f"eosdb_baseline_{copy}")
    signed = (total + 2**63) % 2**64 - 2**63
    op.get_bind().exec_driver_sql("UPDATE eosdb_baseline SET rows_sum = ?", (signed,))
    _with_checksums("eosdb_baseline")
