"""Moving a file's topics to a Kafka cluster: plan, rehearse, cut over, undo (docs/moving-to-kafka.md)."""

from eosdb.integrations.moving.move import to_kafka as to_kafka
