"""Programs as users write them: they know nothing of eosdb, only Kafka's clients."""
