-- Every transactional id the coordinator knows, and the state of its newest transaction.
CREATE VIEW transactions AS
SELECT
    transactional_id, producer_id, producer_epoch, state, timeout_ms, start_time, last_update_time,
    (
        SELECT json_group_array(
            json_object('topic', json_extract(p.value, '$[0]'), 'partition', json_extract(p.value, '$[1]'))
        )
        FROM json_each(partitions) p
    ) AS partitions
FROM transactional_ids;
