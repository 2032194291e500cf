"""SQLite's write-ahead log: renewed after a failed sync, and the readers that make it grow."""
