"""What SQLite does not do for its write-ahead log: renewal after a failed sync, and who lets it grow."""
