"""Records as columns and bytes, and the partition of a record."""
