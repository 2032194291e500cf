"""Producers and consumers like Kafka's, which send requests to the broker."""
