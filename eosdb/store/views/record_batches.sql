-- Every batch ever appended, as the journal has it, control batches among them; records may be gone.
CREATE VIEW record_batches AS
SELECT
    j.position, j.timestamp, j.topic, j.partition,
    ifnull(json_extract(j.detail, '$.base_offset'), json_extract(j.detail, '$.offset')) AS base_offset,
    ifnull(json_extract(j.detail, '$.count'), 1) AS count,
    coalesce(
        json_extract(j.detail, '$.producer_id'),
        CASE WHEN j.transactional_id IS NULL THEN -1 END,
        (
            SELECT h.producer_id FROM transaction_history h
            WHERE h.transactional_id = j.transactional_id AND h.position < j.position
            ORDER BY h.position DESC LIMIT 1
        ),
        -- Its transaction's events are gone: as of the baseline, or before that as its records have it.
        (
            SELECT b.producer_id FROM eosdb_baseline_transactional_ids b
            WHERE b.transactional_id = j.transactional_id
                AND j.position > (SELECT position FROM eosdb_baseline)
        ),
        (
            SELECT r.producer_id FROM records r
            WHERE r.partition_id = json_extract(j.detail, '$.partition_id')
                AND r."offset" >= ifnull(
                    json_extract(j.detail, '$.base_offset'), json_extract(j.detail, '$.offset')
                )
                AND r."offset" < ifnull(
                    json_extract(j.detail, '$.base_offset'), json_extract(j.detail, '$.offset')
                ) + ifnull(json_extract(j.detail, '$.count'), 1)
            ORDER BY r."offset" LIMIT 1
        )
    ) AS producer_id,
    coalesce(
        json_extract(j.detail, '$.producer_epoch'),
        CASE WHEN j.transactional_id IS NULL THEN -1 END,
        (
            SELECT h.producer_epoch FROM transaction_history h
            WHERE h.transactional_id = j.transactional_id AND h.position < j.position
            ORDER BY h.position DESC LIMIT 1
        ),
        -- Its transaction's events are gone: as of the baseline, or before that as its records have it.
        (
            SELECT b.producer_epoch FROM eosdb_baseline_transactional_ids b
            WHERE b.transactional_id = j.transactional_id
                AND j.position > (SELECT position FROM eosdb_baseline)
        ),
        (
            SELECT r.producer_epoch FROM records r
            WHERE r.partition_id = json_extract(j.detail, '$.partition_id')
                AND r."offset" >= ifnull(
                    json_extract(j.detail, '$.base_offset'), json_extract(j.detail, '$.offset')
                )
                AND r."offset" < ifnull(
                    json_extract(j.detail, '$.base_offset'), json_extract(j.detail, '$.offset')
                ) + ifnull(json_extract(j.detail, '$.count'), 1)
            ORDER BY r."offset" LIMIT 1
        )
    ) AS producer_epoch,
    ifnull(
        json_extract(j.detail, '$.base_sequence'),
        CASE WHEN j.kind = 'BatchAppended' AND j.transactional_id IS NOT NULL THEN 0 ELSE -1 END
    ) AS base_sequence,
    j.transactional_id,
    CASE
        WHEN j.kind = 'MarkerWritten' THEN 1
        ELSE ifnull(json_extract(j.detail, '$.is_transactional'), j.transactional_id IS NOT NULL)
    END AS is_transactional,
    CASE WHEN j.kind = 'MarkerWritten' THEN ifnull(json_extract(j.detail, '$.control'), 'COMMIT') END
        AS control,
    ifnull(
        json_extract(j.detail, '$.max_timestamp'),
        j.timestamp - ifnull(json_extract(j.detail, '$.age_ms'), 0)
    ) AS max_timestamp,
    ifnull(json_extract(j.detail, '$.size'), 0) AS size
FROM journal j
WHERE j.kind IN ('BatchAppended', 'MarkerWritten');
