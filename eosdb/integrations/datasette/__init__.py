"""Datasette shows the views of a file: the metadata, and a plugin by which Datasette 0.65 finds it."""
