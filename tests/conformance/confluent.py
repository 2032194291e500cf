"""What the two doubles with confluent-kafka's classes have in common: settings and error names."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tests.conformance.double import Settings

NO_REQUESTS: Final = "there is no request with a producer id, epoch and sequence of one's choosing"


def producer_config(settings: Settings) -> dict[str, object]:
    """The settings under librdkafka's names, the unset ones left out."""
    transactional = settings.transactional_id is not None
    named: dict[str, object | None] = {
        "transactional.id": settings.transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms if transactional else None,
        "enable.idempotence": settings.idempotence,
        "acks": settings.acks,
        "max.in.flight": settings.max_in_flight,
    }
    return {name: value for name, value in named.items() if value is not None}


def error_name(error: Exception) -> str:
    """librdkafka's name of the error; those of the client itself begin with an underscore."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return cause.name() if isinstance(cause, KafkaError) else type(error).__name__
