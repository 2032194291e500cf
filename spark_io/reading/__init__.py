"""Tasks, streams and the table function: what reads the planned ranges."""
