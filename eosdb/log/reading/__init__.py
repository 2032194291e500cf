"""Reading a partition: records by offset or time, packed for bulk readers; row checks; lag."""
