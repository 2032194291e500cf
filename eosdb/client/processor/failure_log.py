"""The log lines of a processor: one for each failed attempt, and one for each dead letter.

A handler of two parameters runs inside the file's only write lock, so nothing is logged before its
release. A dead letter is logged once its transaction is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.failure import Failure
from eosdb.client.processor.progress import is_complete
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold, one_line
from eosdb.model.values import OffsetAndMetadata, TopicPartition

Key = tuple[TopicPartition, int]


class FailureLog:
    """Collects log lines until they may be written. Used only by the thread that processes."""

    def __init__(self, settings: ProcessorSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._untold = Untold()
        self._given_up: dict[Key, Failure] = {}

    def tell(self) -> None:
        self._untold.tell()

    def failed(self, topic: str, failure: Failure, error: Exception, *, will_retry: bool) -> None:
        """Collect the line of a failed attempt at a record of `topic`, which may be a retry topic."""
        if not catalog.ATTEMPT_FAILED.is_wanted:
            return
        step, delay_ms, step_text = self._next(topic, will_retry=will_retry)
        settings = self._settings
        self._untold.add(
            catalog.ATTEMPT_FAILED,
            trace=catalog.ATTEMPT_FAILED.traced(error),
            **self._place(failure),
            attempts=settings.max_attempts * (len(settings.retry_topics) + 1),
            next_step=step,
            next_step_text=step_text,
            delay_ms=delay_ms,
        )

    def given_up(self, key: Key, failure: Failure) -> None:
        """Note that the record read at `key` becomes a dead letter when the transaction is committed."""
        self._given_up[key] = failure

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Collect the lines of the dead letters that a transaction has committed, up to these offsets."""
        for tp, offset in list(self._given_up):
            if tp not in offsets or not is_complete(offsets[tp], offset):
                continue
            failure = self._given_up.pop((tp, offset))
            self._untold.add(
                catalog.DEAD_LETTER,
                **self._place(failure),
                dead_letter_topic=self._settings.dead_letter_topic,
            )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget dead letters of partitions that other members process now."""
        self._given_up = {k: f for k, f in self._given_up.items() if k[0] not in partitions}

    def _next(self, topic: str, *, will_retry: bool) -> tuple[str, int, str]:
        """The next step after a failure: its name, the pause before it (ms), and a text about it."""
        settings = self._settings
        if will_retry:
            pause_ms = settings.retry_backoff_ms
            return "retry", pause_ms, f"tried again in {pause_ms} ms"
        if settings.dead_letter_topic is None:
            return "stop", 0, "the processor stops: there is no dead_letter_topic"
        stage = settings.stage(topic)
        if stage < len(settings.retry_topics):
            delay_ms = settings.retry_delays_ms[stage]
            name = settings.retry_topics[stage]
            return "retry_topic", delay_ms, f"tried again in {delay_ms} ms, by way of {name}"
        name = settings.dead_letter_topic
        return "dead_letter", 0, f"goes to the dead letter topic {name}"

    def _place(self, failure: Failure) -> dict[str, Any]:
        """The values in both kinds of lines."""
        message = one_line(failure.message)
        return {
            "topic": failure.topic,
            "partition": failure.partition,
            "offset": failure.offset,
            "group_id": self._group_id,
            "attempt": failure.attempts,
            "error": failure.error,
            "cause": f"{failure.error}: {message}" if message else failure.error,
        }
