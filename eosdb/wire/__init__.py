"""Kafka's protocol in front of an eosdb file: frames, messages, record batches, and the server."""
