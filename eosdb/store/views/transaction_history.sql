-- Every change of a transaction's state, in order of position.
CREATE VIEW transaction_history AS
SELECT
    j.position, j.transactional_id,
    -- What an event does not name is as in the transition before it, or as of the baseline; one that begins a
    -- transaction names it.
    coalesce(
        json_extract(j.detail, '$.producer_id'),
        (
            SELECT json_extract(n.detail, '$.producer_id') FROM journal n
            WHERE n.kind = 'TransactionStateChanged' AND n.transactional_id = j.transactional_id
                AND n.position < j.position
                AND json_extract(n.detail, '$.producer_id') IS NOT NULL
            ORDER BY n.position DESC LIMIT 1
        ),
        (
            SELECT b.producer_id FROM eosdb_baseline_transactional_ids b
            WHERE b.transactional_id = j.transactional_id
        )
    ) AS producer_id,
    -- A decision that names no epoch has raised it by one.
    coalesce(
        json_extract(j.detail, '$.producer_epoch'),
        (
            SELECT json_extract(n.detail, '$.producer_epoch') + EXISTS (
                SELECT 1 FROM journal d
                WHERE d.kind = 'TransactionStateChanged' AND d.transactional_id = j.transactional_id
                    AND d.position > n.position AND d.position <= j.position
                    AND json_extract(d.detail, '$.to_state') IN ('PrepareCommit', 'PrepareAbort')
            )
            FROM journal n
            WHERE n.kind = 'TransactionStateChanged' AND n.transactional_id = j.transactional_id
                AND n.position < j.position
                AND json_extract(n.detail, '$.producer_epoch') IS NOT NULL
            ORDER BY n.position DESC LIMIT 1
        ),
        (
            SELECT b.producer_epoch + EXISTS (
                SELECT 1 FROM journal d
                WHERE d.kind = 'TransactionStateChanged' AND d.transactional_id = j.transactional_id
                    AND d.position <= j.position
                    AND json_extract(d.detail, '$.to_state') IN ('PrepareCommit', 'PrepareAbort')
            )
            FROM eosdb_baseline_transactional_ids b
            WHERE b.transactional_id = j.transactional_id
        )
    ) AS producer_epoch,
    CASE
        WHEN json_type(j.detail, '$.from_state') IS NOT NULL
            THEN json_extract(j.detail, '$.from_state')
        WHEN json_extract(j.detail, '$.to_state') IN ('PrepareCommit', 'PrepareAbort') THEN 'Ongoing'
        WHEN json_extract(j.detail, '$.to_state') = 'CompleteCommit' THEN 'PrepareCommit'
        WHEN json_extract(j.detail, '$.to_state') = 'CompleteAbort' THEN 'PrepareAbort'
        WHEN json_extract(j.detail, '$.to_state') IS NOT NULL THEN NULL
        WHEN json_extract(j.detail, '$.producer_id') IS NULL THEN 'Ongoing'
        ELSE 'CompleteCommit'
    END AS from_state,
    ifnull(json_extract(j.detail, '$.to_state'), 'Ongoing') AS to_state,
    j.timestamp,
    CASE
        WHEN json_extract(j.detail, '$.to_state') IN ('Empty', 'CompleteCommit', 'CompleteAbort')
            THEN '[]'
        -- An event that names both is whole.
        WHEN json_type(j.detail, '$.groups') IS NOT NULL
            AND json_type(j.detail, '$.timeout_ms') IS NOT NULL
            THEN json_extract(j.detail, '$.partitions')
        ELSE (
            SELECT json_group_array(json_object('topic', topic, 'partition', partition))
            FROM (
                SELECT
                    ifnull(n.topic, json_extract(p.value, '$.topic')) AS topic,
                    ifnull(n.partition, json_extract(p.value, '$.partition')) AS partition
                FROM journal n LEFT JOIN json_each(n.detail, '$.partitions') p
                WHERE n.kind = 'TransactionStateChanged' AND n.transactional_id = j.transactional_id
                    AND n.position <= j.position
                    AND n.position > ifnull(
                        (
                            SELECT e.position FROM journal e
                            WHERE e.kind = 'TransactionStateChanged'
                                AND e.transactional_id = j.transactional_id
                                AND e.position < j.position
                                AND json_extract(e.detail, '$.to_state')
                                    IN ('Empty', 'CompleteCommit', 'CompleteAbort')
                            ORDER BY e.position DESC LIMIT 1
                        ),
                        0
                    )
                    AND coalesce(n.topic, p.value) IS NOT NULL
                UNION
                SELECT json_extract(p.value, '$.topic'), json_extract(p.value, '$.partition')
                FROM eosdb_baseline_transactional_ids b, json_each(b.partitions) p
                WHERE b.transactional_id = j.transactional_id AND NOT EXISTS (
                    SELECT 1 FROM journal e
                    WHERE e.kind = 'TransactionStateChanged'
                        AND e.transactional_id = j.transactional_id AND e.position < j.position
                        AND json_extract(e.detail, '$.to_state')
                            IN ('Empty', 'CompleteCommit', 'CompleteAbort')
                )
                ORDER BY 1, 2
            ) joined
        )
    END AS partitions
FROM journal j
WHERE j.kind = 'TransactionStateChanged';
