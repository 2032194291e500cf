"""The values that all rooms share: records, batches, answers, reports."""
