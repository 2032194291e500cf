"""The values that all packages of eosdb share: records, batches, results, reports."""
