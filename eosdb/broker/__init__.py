"""One method for each of Kafka's requests, and the two that Kafka has not: append_once and begin."""
