-- Every change of a transaction's state, in order of position.
CREATE VIEW transaction_history AS
SELECT
    position, transactional_id,
    json_extract(detail, '$[0]') AS producer_id,
    json_extract(detail, '$[1]') AS producer_epoch,
    json_extract(
        '["Empty","Ongoing","PrepareCommit","PrepareAbort","CompleteCommit","CompleteAbort","Dead","PrepareEpochFence"]',
        '$[' || json_extract(detail, '$[4]') || ']'
    ) AS from_state,
    json_extract(
        '["Empty","Ongoing","PrepareCommit","PrepareAbort","CompleteCommit","CompleteAbort","Dead","PrepareEpochFence"]',
        '$[' || json_extract(detail, '$[5]') || ']'
    ) AS to_state,
    timestamp,
    (
        SELECT json_group_array(
            json_object('topic', json_extract(p.value, '$[0]'), 'partition', json_extract(p.value, '$[1]'))
        )
        FROM json_each(detail, '$[8]') p
    ) AS partitions
FROM eosdb_journal
WHERE kind = 'TransactionStateChanged';
