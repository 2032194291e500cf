"""Rows in and out of SQLite: connections, units of work, the journal, the schema."""
