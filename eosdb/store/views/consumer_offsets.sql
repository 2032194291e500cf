-- Each group's committed offsets, and its lag. readable_lag counts records that a read_committed reader
-- could take now, held_back records behind the last stable offset; markers and aborted data count in neither.
-- Metadata of a processor, such as `eosdb:30 40 2 5`, says: below 40 only 30, 32 and 37 are unfinished.
CREATE VIEW consumer_offsets AS
SELECT
    g.group_id, g.topic, g.partition, g.committed_offset, g.metadata, g.commit_timestamp,
    p.log_end_offset, p.last_stable_offset,
    (
        SELECT count(*) FROM committed_records c
        WHERE c.topic = g.topic AND c.partition = g.partition
            AND c."offset" >= max(g.committed_offset, coalesce(json_extract(said, '$[1]'), 0))
    ) + (
        SELECT count(*) FROM (
            SELECT key, sum(value) FILTER (WHERE key <> 1) OVER (ORDER BY key) AS unfinished
            FROM json_each(said) WHERE json_array_length(said) > 1
        )
        WHERE key <> 1 AND unfinished >= max(g.committed_offset, p.log_start_offset)
    ) AS readable_lag,
    (
        SELECT count(*) FROM all_records a
        WHERE a.topic = g.topic AND a.partition = g.partition
            AND a."offset" >= max(p.last_stable_offset, g.committed_offset)
            AND a.control IS NULL AND a.status <> 'aborted'
    ) AS held_back
FROM (
    SELECT *, CASE
        WHEN NOT json_valid(numbers) THEN '[]'
        WHEN json_extract(numbers, '$[0]') <= committed_offset THEN numbers
        ELSE '[]'
    END AS said
    FROM (
        SELECT *, iif(
            metadata GLOB 'eosdb:[0-9]*', '[' || replace(substr(metadata, 7), ' ', ',') || ']', '[]'
        ) AS numbers
        FROM group_offsets
    )
) g
LEFT JOIN partitions p ON p.topic = g.topic AND p.partition = g.partition;
