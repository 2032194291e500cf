-- Every transactional id the coordinator knows, and the state of its newest transaction.
CREATE VIEW transactions AS
SELECT
    transactional_id, producer_id, producer_epoch, state, timeout_ms, start_time, last_update_time,
    partitions
FROM transactional_ids;
