-- Every record that has entered its topic, control records included, with its status.
CREATE VIEW all_records AS
SELECT
    p.topic, p.partition, r."offset", r.timestamp, r.timestamp_type, r.key, r.value, r.headers,
    r.producer_id, r.producer_epoch, r.sequence, i.transactional_id,
    r.is_transactional, r.control,
    CASE
        WHEN r.control = 'COMMIT' THEN 'committed'
        WHEN r.control = 'ABORT' THEN 'aborted'
        WHEN NOT r.is_transactional THEN 'committed'
        WHEN EXISTS (
            SELECT 1 FROM partition_producers s
            WHERE s.partition_id = r.partition_id
                AND s.producer_id = r.producer_id
                AND s.current_txn_start_offset >= 0
                AND s.current_txn_start_offset <= r."offset"
        ) THEN 'open'
        WHEN (
            SELECT a.first_offset <= r."offset"
            FROM transaction_index a
            WHERE a.partition_id = r.partition_id
                AND a.producer_id = r.producer_id
                AND a.last_offset > r."offset"
            ORDER BY a.last_offset
            LIMIT 1
        ) THEN 'aborted'
        ELSE 'committed'
    END AS status
FROM partitions p
CROSS JOIN records r
LEFT JOIN producer_ids i ON i.producer_id = r.producer_id AND r.is_transactional
WHERE r.partition_id = p.partition_id AND p.partition >= 0 AND +r."offset" >= p.log_start_offset;
