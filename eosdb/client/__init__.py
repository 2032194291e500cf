"""What Kafka's clients do: producers and consumers over the request level."""
