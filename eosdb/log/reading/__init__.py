"""Reads a partition: records by offset or time; row checks; lag."""
