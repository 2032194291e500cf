"""What a processor says of its records: one line for each failed attempt, and one for each dead letter.

A handler of two parameters runs inside the file's only write lock, so nothing is said before that is free;
and a dead letter is one when its transaction is committed, not before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.failure import Failure
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold, one_line
from eosdb.model.values import OffsetAndMetadata, TopicPartition

Key = tuple[TopicPartition, int]


class Telling:
    """Collects what is to be said. Used by the one thread that processes."""

    def __init__(self, settings: ProcessorSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id
        self._untold = Untold()
        self._given_up: dict[Key, Failure] = {}
        """Dead letters of the transaction that is open."""

    def tell(self) -> None:
        """Say what has been collected."""
        if self._untold.waiting:
            self._untold.tell()

    def failed(self, topic: str, failure: Failure, error: Exception, *, will_retry: bool) -> None:
        """An attempt has failed at a record that was read from `topic`, perhaps a retry topic."""
        if not catalog.ATTEMPT_FAILED.is_wanted:
            return
        step, delay_ms, following = self._next(topic, will_retry=will_retry)
        settings = self._settings
        self._untold.add(
            catalog.ATTEMPT_FAILED,
            "group %s: %s-%d offset %d: attempt %d of %d failed: %s; %s",
            self._group_id,
            failure.topic,
            failure.partition,
            failure.offset,
            failure.attempts,
            settings.max_attempts * (len(settings.retry_topics) + 1),
            _text(failure),
            following,
            trace=catalog.ATTEMPT_FAILED.traced(error),
            topic=failure.topic,
            partition=failure.partition,
            offset=failure.offset,
            group_id=self._group_id,
            attempt=failure.attempts,
            error=failure.error,
            next_step=step,
            delay_ms=delay_ms,
        )

    def given_up(self, key: Key, failure: Failure) -> None:
        """The record that was read at `key` is a dead letter, once the transaction is committed."""
        self._given_up[key] = failure

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A transaction is committed up to these offsets."""
        for key in [k for k in self._given_up if k[0] in offsets and k[1] < offsets[k[0]].offset]:
            failure = self._given_up.pop(key)
            self._untold.add(
                catalog.DEAD_LETTER,
                "group %s: %s-%d offset %d: given up after attempt %d, and sent to %s: %s",
                self._group_id,
                failure.topic,
                failure.partition,
                failure.offset,
                failure.attempts,
                self._settings.dead_letter_topic,
                _text(failure),
                topic=failure.topic,
                partition=failure.partition,
                offset=failure.offset,
                group_id=self._group_id,
                attempt=failure.attempts,
                error=failure.error,
                dead_letter_topic=self._settings.dead_letter_topic,
            )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others process these now."""
        self._given_up = {k: f for k, f in self._given_up.items() if k[0] not in partitions}

    def _next(self, topic: str, *, will_retry: bool) -> tuple[str, int, str]:
        """What comes next: its name, the pause before it in ms, and in words."""
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


def _text(failure: Failure) -> str:
    return f"{failure.error}: {one_line(failure.message)}" if failure.message else failure.error
