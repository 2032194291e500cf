"""What operators ask for and change: topics, groups, transactions, the log, and why something stands."""
