-- Where each partition's log begins, ends and becomes readable. There is one copy, so the high
-- watermark is the log end.
CREATE VIEW partition_offsets AS
SELECT
    topic, partition, log_start_offset, log_end_offset, log_end_offset AS high_watermark,
    last_stable_offset, first_unstable_offset
FROM partitions
WHERE partition >= 0;
