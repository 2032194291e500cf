-- The records that a read_committed consumer reads: data below the last stable offset that was not aborted.
--
-- Shape matters. CROSS JOIN (without ON, which DuckDB does not know) keeps partitions the outer loop, and the unary plus keeps the LSO and log
-- start out of the choice of index, so that a range on "offset" is an index range. The nearest abort
-- marker of the producer decides: its transactions in one partition do not overlap.
CREATE VIEW committed_records AS
SELECT
    p.topic, p.partition, r."offset", r.timestamp, r.timestamp_type, r.key, r.value, r.headers,
    r.producer_id, r.producer_epoch, r.sequence, i.transactional_id
FROM partitions p
CROSS JOIN records r
LEFT JOIN producer_ids i ON i.producer_id = r.producer_id AND r.is_transactional
WHERE r.partition_id = p.partition_id
    AND p.partition >= 0
    AND +r."offset" < p.last_stable_offset
    AND +r."offset" >= p.log_start_offset
    AND r.control IS NULL
    AND (
        NOT r.is_transactional
        OR COALESCE(
            (
                SELECT a.first_offset > r."offset"
                FROM transaction_index a
                WHERE a.partition_id = r.partition_id
                    AND a.producer_id = r.producer_id
                    AND a.last_offset > r."offset"
                ORDER BY a.last_offset
                LIMIT 1
            ),
            1
        )
    );
