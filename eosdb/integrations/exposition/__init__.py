"""Figures for Prometheus: the text format, what of a database it shows, and a small server;
metadata for Datasette."""
