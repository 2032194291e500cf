"""What clients' errors mean, by the clients' own classes."""

from __future__ import annotations

import pytest

from eosdb import errors
from tests.trials.hunts import meanings


def test_every_code_of_the_server_has_a_meaning_which_is_that_of_its_class() -> None:
    assert {3, 45, 56, 90, 120, -1} < set(meanings.CODES)
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, errors.ApiError) and kind is not errors.ApiError:
            assert meanings.CODES[kind.code] == kind.name
            assert meanings.of_answer(kind.code) == kind.outcome
            assert meanings.of_code(kind.code) in (kind.outcome, "unknown"), "never bolder"


@pytest.mark.parametrize(
    ("code", "sending", "committing"),
    [
        (10, "not written", "unknown"),
        (45, "unknown", "unknown"),
        (46, "written", "written"),
        (90, "unknown", "unknown"),
        (120, "unknown", "not written"),
        (None, "unknown", "unknown"),
    ],
)
def test_a_client_repeats_so_only_what_no_repeat_can_get_is_not_written(
    code: int | None, sending: str, committing: str
) -> None:
    assert meanings.of_code(code) == sending
    assert meanings.of_code(code, committing=True) == committing


def test_librdkafkas_errors() -> None:
    from confluent_kafka import KafkaError as error
    from confluent_kafka import KafkaException as raised

    assert meanings.of_confluent(error(error.MSG_SIZE_TOO_LARGE)) == "not written"
    assert meanings.of_confluent(error(error._PURGE_QUEUE)) == "not written"
    assert meanings.of_confluent(error(error._PURGE_INFLIGHT)) == "unknown"
    assert meanings.of_confluent(raised(error(error._MSG_TIMED_OUT))) == "unknown"
    assert meanings.of_confluent(BufferError("Local: Queue full")) == "not written"
    fenced = raised(error(error._FENCED, fatal=True))
    assert meanings.of_confluent(fenced, committing=True) == "unknown"
    to_abort = raised(error(error._STATE, txn_requires_abort=True))
    assert meanings.of_confluent(to_abort, committing=True) == "not written"
    late = raised(error(error.INVALID_PRODUCER_ID_MAPPING, txn_requires_abort=True))
    assert meanings.of_confluent(late, committing=True) == "unknown"


def test_those_of_the_pure_python_clients() -> None:
    from aiokafka import errors as asyncio
    from kafka import errors as python

    for of, library in ((meanings.of_kafka_python, python), (meanings.of_aiokafka, asyncio)):
        assert of(library.MessageSizeTooLargeError()) == "not written"
        assert of(library.KafkaTimeoutError()) == "unknown"
        assert of(library.KafkaConnectionError()) == "unknown"
        assert of(library.KafkaError()) == "unknown"
    assert meanings.of_kafka_python(python.TransactionAbortedError()) == "not written"
    assert meanings.of_aiokafka(asyncio.ProducerFenced(), committing=True) == "unknown"


def test_javas() -> None:
    where = "org.apache.kafka.common.errors."
    assert meanings.of_java(f"{where}RecordTooLargeException") == "not written"
    assert meanings.of_java(f"{where}TopicAuthorizationException") == "not written"
    assert meanings.of_java("TransactionAbortedException") == "not written"
    assert meanings.of_java(f"{where}ProducerFencedException", committing=True) == "unknown"
    assert meanings.of_java("TransactionAbortableException", committing=True) == "not written"
    assert meanings.of_java("TimeoutException") == "unknown"
