"""Datasette shows the views of a file: the metadata, and a plugin that passes it to Datasette 0.65."""
