-- Each partition's state of each producer; -1 stands for none.
CREATE VIEW producer_states AS
SELECT
    p.topic, p.partition, s.producer_id, s.producer_epoch, s.last_sequence, s.last_offset,
    s.last_timestamp, s.coordinator_epoch, s.current_txn_start_offset
FROM partition_producers s
JOIN partitions p ON p.partition_id = s.partition_id AND p.partition >= 0;
