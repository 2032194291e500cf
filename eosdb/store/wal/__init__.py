"""Extensions to SQLite's write-ahead log: renew it after a failed sync, and name the readers that make it
grow."""
