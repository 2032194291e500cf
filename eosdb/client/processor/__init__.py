"""The consume–process–produce loop, its retries and its dead letters."""
