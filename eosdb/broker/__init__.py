"""One method for each Kafka request, and the two that Kafka does not have: append_once and begin."""
