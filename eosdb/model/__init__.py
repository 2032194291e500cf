"""The values that everybody speaks in: records, batches, answers, reports."""
