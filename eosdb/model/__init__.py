"""The values that all rooms share: records, batches, results, reports."""
