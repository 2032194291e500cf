"""The consume–process–produce loop, and what becomes of records that fail."""
