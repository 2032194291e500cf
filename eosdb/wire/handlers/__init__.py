"""A function for each API of Kafka's protocol: it calls the broker and builds the response."""
