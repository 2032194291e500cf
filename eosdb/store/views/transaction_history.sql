-- Every transition ever made, in order of position.
CREATE VIEW transaction_history AS
SELECT
    position, transactional_id,
    json_extract(detail, '$.producer_id') AS producer_id,
    json_extract(detail, '$.producer_epoch') AS producer_epoch,
    json_extract(detail, '$.from_state') AS from_state,
    json_extract(detail, '$.to_state') AS to_state,
    timestamp,
    json_extract(detail, '$.partitions') AS partitions
FROM journal
WHERE kind = 'TransactionStateChanged';
