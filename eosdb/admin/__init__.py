"""What operators inspect and change: topics, groups, transactions, the log, and why a reader is stuck."""
