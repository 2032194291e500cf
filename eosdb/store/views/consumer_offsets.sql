-- Each group's committed offsets, and its lag. readable_lag counts records that a read_committed reader
-- could take now, held_back records behind the last stable offset; markers and aborted data count in neither.
CREATE VIEW consumer_offsets AS
SELECT
    g.group_id, g.topic, g.partition, g.committed_offset, g.metadata, g.commit_timestamp,
    p.log_end_offset, p.last_stable_offset,
    (
        SELECT count(*) FROM committed_records c
        WHERE c.topic = g.topic AND c.partition = g.partition AND c."offset" >= g.committed_offset
    ) AS readable_lag,
    (
        SELECT count(*) FROM all_records a
        WHERE a.topic = g.topic AND a.partition = g.partition
            AND a."offset" >= max(p.last_stable_offset, g.committed_offset)
            AND a.control IS NULL AND a.status <> 'aborted'
    ) AS held_back
FROM group_offsets g
LEFT JOIN partitions p ON p.topic = g.topic AND p.partition = g.partition;
