"""Metrics for Prometheus: the metrics of a database, and a small HTTP server."""
