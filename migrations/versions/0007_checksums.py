"""Checksums for rows without an event, and for rows that decide which records readers see.

Existing records and events get none, so a large file is upgraded as fast as a small one. The other tables
are small, and their rows must equal the result of a replay.
"""

from collections.abc import Callable
from zlib import crc32

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE records ADD COLUMN checksum INT;
ALTER TABLE journal ADD COLUMN checksum INT;
ALTER TABLE group_sessions ADD COLUMN checksum INT;
ALTER TABLE eosdb_file ADD COLUMN checksum INT;
ALTER TABLE partitions ADD COLUMN last_aborted_offset INT NOT NULL DEFAULT -1;
ALTER TABLE partitions ADD COLUMN checked_from INT NOT NULL DEFAULT -1;
ALTER TABLE partitions ADD COLUMN checksum INT NOT NULL DEFAULT 0;
ALTER TABLE transaction_index ADD COLUMN previous_offset INT NOT NULL DEFAULT -1;
ALTER TABLE transaction_index ADD COLUMN checksum INT NOT NULL DEFAULT 0;
UPDATE transaction_index AS mine SET previous_offset = COALESCE((
    SELECT max(i.last_offset) FROM transaction_index i
    WHERE i.partition_id = mine.partition_id AND i.last_offset < mine.last_offset
), -1);
UPDATE partitions AS mine SET last_aborted_offset = COALESCE((
    SELECT max(i.last_offset) FROM transaction_index i WHERE i.partition_id = mine.partition_id
), -1);
UPDATE group_sessions SET checksum = row_checksum(group_id, member_id, expires);
UPDATE eosdb_file SET checksum = row_checksum(file_id);
UPDATE transaction_index SET checksum = row_checksum(
    partition_id, producer_id, first_offset, last_offset, last_stable_offset, previous_offset
);
UPDATE partitions SET checksum = row_checksum(
    partition_id, topic_id, topic, partition, log_start_offset, log_end_offset, last_stable_offset,
    first_unstable_offset, size_bytes, max_timestamp, max_timestamp_offset, indexed_timestamp,
    bytes_since_index, clean_offset, snapshot_offset, last_aborted_offset, checked_from
);
"""


def _row_checksum(*columns: object) -> int:
    return crc32("\x1f".join(map(str, columns)).encode())


def upgrade() -> None:
    driver = op.get_bind().connection.driver_connection
    create_function: Callable[..., None] = driver.create_function  # type: ignore[union-attr]
    create_function("row_checksum", -1, _row_checksum)
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
