-- Every batch in the journal, control batches included; its records may be deleted.
CREATE VIEW record_batches AS
SELECT
    j.position, j.timestamp, j.topic, j.partition, j.base_offset, j.count,
    coalesce(
        json_extract(j.detail, '$.producer_id'),
        CASE WHEN j.transactional_id IS NULL THEN -1 END,
        json_extract(j.producer, '$[0]')
    ) AS producer_id,
    coalesce(
        json_extract(j.detail, '$.producer_epoch'),
        CASE WHEN j.transactional_id IS NULL THEN -1 END,
        json_extract(j.producer, '$[1]')
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
FROM (
    SELECT
        b.*,
        -- Id and epoch as of the newest transition of the transaction. If its events are gone: as of the
        -- baseline, or for a batch before the baseline as its records have them.
        coalesce(
            (
                SELECT json_array(h.producer_id, h.producer_epoch) FROM transaction_history h
                WHERE h.transactional_id = b.transactional_id AND h.position < b.position
                ORDER BY h.position DESC LIMIT 1
            ),
            (
                SELECT json_array(i.producer_id, i.producer_epoch)
                FROM eosdb_baseline_transactional_ids i
                WHERE i.transactional_id = b.transactional_id
                    AND b.position > (SELECT position FROM eosdb_baseline)
            ),
            (
                SELECT json_array(r.producer_id, r.producer_epoch) FROM records r
                WHERE r.partition_id = json_extract(b.detail, '$.partition_id')
                    AND r."offset" >= b.base_offset AND r."offset" < b.base_offset + b.count
                ORDER BY r."offset" LIMIT 1
            )
        ) AS producer
    FROM (
        SELECT
            *,
            ifnull(json_extract(detail, '$.base_offset'), json_extract(detail, '$.offset'))
                AS base_offset,
            ifnull(json_extract(detail, '$.count'), 1) AS count
        FROM journal
        WHERE kind IN ('BatchAppended', 'MarkerWritten')
    ) b
) j;
