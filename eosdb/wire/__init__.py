"""Kafka's wire protocol for an eosdb file: frames, messages, record batches, and the server."""
