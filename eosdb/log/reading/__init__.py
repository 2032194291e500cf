"""Reading a partition: records in a range, by time, packed for bulk readers; checked row by row; lag."""
