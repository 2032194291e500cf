-- The committed records that are not due yet. What waits for partition p is stored in partition -1 - p.
CREATE VIEW scheduled_records AS
SELECT
    s.partition_id || '.' || s."offset" AS id, p.topic, -1 - p.partition AS partition,
    r.key, r.value, s.due AS deliver_at, r.headers
FROM eosdb_scheduled s
CROSS JOIN partitions p
CROSS JOIN records r
WHERE s.producer_id = -1
    AND p.partition_id = s.partition_id
    AND r.partition_id = s.partition_id
    AND r."offset" = s."offset";
