"""Inspection and administration for operators: topics, groups, transactions, the log, and stuck readers."""
