-- Every batch in the journal, control batches included; its records may be deleted.
CREATE VIEW record_batches AS
SELECT
    position, timestamp, topic, partition,
    json_extract(detail, '$[1]') AS base_offset,
    iif(kind = 'BatchAppended', json_extract(detail, '$[2]'), 1) AS count,
    json_extract(detail, iif(kind = 'BatchAppended', '$[3]', '$[2]')) AS producer_id,
    json_extract(detail, iif(kind = 'BatchAppended', '$[4]', '$[3]')) AS producer_epoch,
    iif(kind = 'BatchAppended', json_extract(detail, '$[5]'), -1) AS base_sequence,
    transactional_id,
    iif(kind = 'BatchAppended', json_extract(detail, '$[6]'), 1) AS is_transactional,
    iif(kind = 'BatchAppended', NULL, json_extract(detail, '$[5]')) AS control,
    iif(kind = 'BatchAppended', json_extract(detail, '$[7]'), timestamp) AS max_timestamp,
    iif(kind = 'BatchAppended', json_extract(detail, '$[9]'), 0) AS size
FROM eosdb_journal
WHERE kind IN ('BatchAppended', 'MarkerWritten');
