-- The transaction index: the offsets of aborted data, and the last stable offset after the abort.
CREATE VIEW aborted_transactions AS
SELECT
    p.topic, p.partition, a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset
FROM partitions p
CROSS JOIN transaction_index a
WHERE a.partition_id = p.partition_id AND p.partition >= 0;
