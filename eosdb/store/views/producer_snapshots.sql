-- Producer states as of snapshot_offset (exclusive); the newest two per partition are kept.
CREATE VIEW producer_snapshots AS
SELECT
    p.topic, p.partition, s.snapshot_offset, s.producer_id, s.producer_epoch, s.last_sequence,
    s.last_offset, s.offset_delta, s.timestamp, s.coordinator_epoch, s.current_txn_first_offset
FROM snapshot_entries s
JOIN partitions p ON p.partition_id = s.partition_id;
