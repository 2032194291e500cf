"""One function per API of Kafka's protocol: from its message to the broker's request, and back."""
