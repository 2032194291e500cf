"""Commands for Kafka: serve its clients, relay to a cluster, move there."""
