"""Moving a file's topics to a Kafka cluster: plan, rehearse, cut over, undo (docs/moving-to-kafka.md)."""

from __future__ import annotations

from eosdb.integrations.moving.move import Move, to_kafka
from eosdb.integrations.moving.plan import Plan, Step

__all__ = ["Move", "Plan", "Step", "to_kafka"]
