"""Reads the planned ranges: tasks, streams and the table function."""
