-- Offsets inside open transactions: they become the group's when the transaction commits.
CREATE VIEW pending_offsets AS
SELECT group_id, topic, partition, "offset", producer_id, producer_epoch
FROM pending_group_offsets;
