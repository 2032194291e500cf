"""The exactly-once sink: staged rows, the identity of a write, the report of its result."""
