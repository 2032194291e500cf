"""The exactly-once sink: staging rows, identifying a write, and reporting its result."""
