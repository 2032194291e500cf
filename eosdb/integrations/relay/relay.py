"""The loop of a relay: committed records of the source are written to the target, exactly once and in
order.

The relay has no state that must survive. Each session first takes the transactional id, which ends the
transaction of a dead relay and fences a living one. Then it reads its positions from the target. After
any failure, the next session learns the outcome of the last transaction.

Records that a target refuses as too large become dead letters.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

from eosdb import errors
from eosdb.client.processor.failure import Failure
from eosdb.integrations.relay import planning, values
from eosdb.integrations.relay.file_ends import FileSource, FileTarget
from eosdb.integrations.relay.kafka_ends import KafkaSource, KafkaTarget
from eosdb.integrations.relay.settings import DEAD_LETTERS, RelaySettings
from eosdb.integrations.relay.status import (
    Keeper,
    Progress,
    RelayStatus,
    Standing,
    transactional_id,
)
from eosdb.model.clock import Clock
from eosdb.model.closing import Closeable, Closing
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice
from eosdb.model.values import RELAY_GROUPS, TopicPartition

Source = FileSource | KafkaSource
Target = FileTarget | KafkaTarget
"""Each is used by one thread. The methods of the file's ends say what those of the cluster's do, too."""
_Place = tuple[str, int, int]


class Aside:
    """The records to send to dead letter topics, with the headers of `eosdb dlq`."""

    def __init__(self, relay: str) -> None:
        self._group: Final = RELAY_GROUPS + relay
        self._failures: dict[_Place, Failure] = {}
        self._is_bare: set[_Place] = set()

    def put(self, record: values.RelayRecord, message: str, now_ms: int) -> str:
        """Mark the record: every later attempt sends it to its dead letter topic, which is returned. After
        a second call for the record, only its headers are sent."""
        place = (record.topic, record.partition, record.offset)
        if place in self._is_bare:
            raise errors.MessageTooLargeError(f"{message}: even without key and value")
        if place in self._failures:
            self._is_bare.add(place)
        self._failures[place] = Failure(
            self._group,
            *place,
            attempts=1,
            error=errors.MessageTooLargeError.__name__,
            message=message,
            stacktrace="",
            failed_ms=now_ms,
        )
        return record.topic + DEAD_LETTERS

    def forget(self) -> None:
        self._failures.clear()
        self._is_bare.clear()

    def outgoing(self, record: values.RelayRecord) -> values.RelayRecords:
        """Convert a record for the target: unchanged, or as a dead letter."""
        topic, partition, offset, timestamp, key, value, headers = record
        failure = self._failures.get((topic, partition, offset)) if self._failures else None
        if failure is None:
            return values.RelayRecords(topic, partition, timestamp, key, value, headers, record)
        if (topic, partition, offset) in self._is_bare:
            key = value = None
            headers = ()
        marked = failure.mark(headers)
        return values.RelayRecords(topic + DEAD_LETTERS, 0, timestamp, key, value, marked, record)


_IDLE_MS: Final = 500
_LOOK_MS: Final = 50
_CREATED_LOOKS: Final = 40
_LOOK_FOR_TOPICS_MS: Final = 5_000
_NOTE_EVERY_MS: Final = 5_000


class Relay(Closeable):
    """A relay, built by `to_kafka`, `from_kafka` or `to_file`. One thread runs it; other threads may read
    its status and stop it. A context manager that closes it."""

    def __init__(
        self, source: Source, target: Target, clock: Clock, settings: RelaySettings
    ) -> None:
        self._source: Final = source
        self._target: Final = target
        self._clock: Final = clock
        self._settings: Final = settings
        self._run_id: Final = uuid.uuid4().hex
        self._stopped = False  # Has no lock, which could deadlock in a signal handler.
        self._progress: Final = Progress(clock)
        self._topics: list[values.SourceTopic] = []
        self._topic_ids: dict[str, str] = {}
        self._target_ids: dict[str, str] = {}
        self._found_run: str | None = None
        self._failures: Iterator[int] = planning.pauses()
        self._looked_ms = self._noted_ms = clock.monotonic_ms()
        self._retimed: set[str] = set()
        """The topics whose timestamps the target replaces; each was logged once."""
        self._is_away = False
        self._aside = Aside(settings.name)
        self._closing: Final = Closing(target.release, source.rest)

    def run(self, *, until_caught_up: bool = False) -> RelayStatus:
        """Relay until `stop` is called, or until everything committed by now has arrived.

        Retries while the source or the target is unreachable, without a limit. Raises errors that need an
        operator: ProducerFencedError (another relay has taken over), OffsetOutOfRangeError (the source has
        deleted the next records, or is an older copy), UnknownTopicOrPartitionError,
        InvalidPartitionsError, MessageTooLargeError, IllegalStateError (another file is at the source's
        path), ConfigError, CorruptRecordError, and authorization errors.
        """
        try:
            while not self._stopped:
                try:
                    if self._session(until_caught_up):
                        break
                except values.InterruptedRelayError as error:
                    self._failed(error)
        except errors.EosdbError as error:
            self._progress.failed(str(error))
            raise
        finally:
            self._target.release()
            self._source.rest()
            self._note_position()
        return self.status()

    def stop(self) -> None:
        """Make `run` return after the current transaction. Threads and signal handlers may call it."""
        self._stopped = True

    def status(self) -> RelayStatus:
        """The positions, and the last error. Threads may call it."""
        return self._progress.status()

    def close(self) -> None:
        """Stop, and close both ends. If it is interrupted, it may be called again."""
        self.stop()
        self._closing.run()

    # -- sessions: from taking the transactional id to the next failure -------------------------------

    def _session(self, until_caught_up: bool) -> bool:
        """Run one session. Returns True if the relay is done, False to start the next session at once."""
        source, target = self._source, self._target
        keeper = Keeper(self._settings.name, source.id(), self._settings.positions_topic)
        if target.id() == keeper.source_id:
            raise errors.ConfigError(f"{target.where} is the source, too; name another target")
        target.ready()
        if self._found_run is not None:  # Another relay may have taken over; do not fence it.
            self._check_claim(keeper.standing(target.position_records()))
        # decisions/0045: take the id before the positions are read, so that no other relay changes them.
        target.take_over(transactional_id(keeper.relay, keeper.source_id), self._is_stopped)
        standing = keeper.standing(target.position_records())
        self._check_claim(standing)
        departed = source.departure(standing.mark) if standing.mark else None
        if departed is not None:
            raise errors.IllegalStateError(
                f"{source.where} is not the file relayed before: {departed}; put that file back, or "
                "relay this one under another name"
            )
        self._topics = source.topics(self._settings.topics)
        self._topic_ids = {topic.name: topic.topic_id for topic in self._topics}
        starts = self._starts(standing)
        self._prepare_topics()
        target.write([keeper.claim(self._run_id, source.mark())])
        source.begin(self._topics, starts)
        self._progress.began(starts)
        return self._copy(keeper, until_caught_up)

    def _copy(self, keeper: Keeper, until_caught_up: bool) -> bool:
        source = self._source
        while not self._stopped:
            chunk = source.read(self._settings.limits)
            self._progress.ends(source.ends())
            if chunk.positions:
                self._write(chunk, keeper)
                self._failures, self._is_away = planning.pauses(), False
                self._aside.forget()
                self._progress.wrote(chunk)
                self._note_position(every_ms=_NOTE_EVERY_MS)
                if self._settings.on_progress is not None:
                    status = self.status()
                    self._settings.on_progress(status.records, status.records + status.lag)
            elif source.is_caught_up() and until_caught_up:
                return not self._is_target_another()
            else:
                self._is_away = False
                self._note_position(every_ms=_NOTE_EVERY_MS)
                source.wait(_IDLE_MS, self._is_stopped)
            if not until_caught_up and self._has_other_topics():
                return False
        return True

    def _write(self, chunk: values.Chunk, keeper: Keeper) -> None:
        behind = [keeper.claim(self._run_id, self._source.mark())]
        for tp, offset in chunk.positions.items():
            ids = self._topic_ids[tp.topic], self._target_ids[tp.topic]
            behind.append(keeper.position(tp, values.RelayPosition(offset, *ids)))
        while True:
            try:
                return self._target.write([*map(self._aside.outgoing, chunk.records), *behind])
            except values.TooLargeError as error:
                self._put_aside(error)

    # -- failures and checks --------------------------------------------------------------------------

    def _failed(self, error: errors.EosdbError) -> None:
        """Record and log a failure, release source and target, and wait, longer each time."""
        self._target.release()
        self._source.rest()
        pause_ms = next(self._failures)
        self._progress.failed(str(error))
        if not self._is_away:  # One failure is logged once, however long it lasts.
            self._tell(catalog.RELAY_WAITS, cause=str(error), error=error)
        self._is_away = True
        until_ms = self._clock.monotonic_ms() + pause_ms
        while not self._stopped and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self._clock.sleep_ms(min(left_ms, _LOOK_MS))

    def _check_claim(self, standing: Standing) -> None:
        """Raises ProducerFencedError if another relay has written a claim. A time-out of a transaction also
        fences, but leaves no claim."""
        if self._found_run is None:
            self._found_run = standing.run
        if standing.run not in (self._run_id, self._found_run):
            raise errors.ProducerFencedError(
                f"another relay named {self._settings.name!r} of this source has taken over at "
                f"{self._target.where}; run one at a time, or give this one a name of its own"
            )

    def _starts(self, standing: Standing) -> dict[TopicPartition, int]:
        ids, starts = self._topic_ids, {}
        self._target_ids = there = {
            name: fact.topic_id for name, fact in self._target.facts(ids).items()
        }
        for tp, bounds in self._source.bounds(self._topics).items():
            position = standing.positions.get(tp)
            starts[tp] = planning.start_of(
                tp, position, ids[tp.topic], bounds, self._settings.on_gap, there.get(tp.topic)
            )
            if position is not None and starts[tp] != position.offset:
                self._tell(
                    catalog.RELAY_GAP,
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=starts[tp],
                    relayed_offset=position.offset,
                )
        return starts

    def _prepare_topics(self) -> None:
        target, names = self._target, [topic.name for topic in self._topics]
        facts = target.facts(names)
        for topic in self._topics:
            if topic.name in facts:
                continue
            if not self._settings.create_topics:
                raise errors.UnknownTopicOrPartitionError(
                    f"{target.where} has no topic {topic.name!r}; create it there with {topic.partitions} "
                    "partitions, or let the relay do so"
                )
            target.create(topic.name, topic.partitions, topic.config)
        for _ in range(_CREATED_LOOKS):  # A new topic needs a moment to reach all brokers.
            facts |= target.facts([name for name in names if name not in facts])
            if len(facts) == len(names):
                break
            self._clock.sleep_ms(_LOOK_MS)
        if lacking := [name for name in names if name not in facts]:
            raise values.InterruptedRelayError(
                f"{target.where}: topic {lacking[0]} does not exist yet"
            )
        planning.checked_partitions(self._topics, facts, target.where)
        target_ids = {name: facts[name].topic_id for name in names}
        if any(target_ids[name] != topic_id for name, topic_id in self._target_ids.items()):
            raise values.InterruptedRelayError(f"{target.where}: a topic was deleted and recreated")
        self._target_ids = target_ids
        for name in names:
            if facts[name].log_append_time and name not in self._retimed:
                self._retimed.add(name)
                self._tell(catalog.RELAY_TIMESTAMPS, target=target.where, topic=name)

    def _put_aside(self, error: values.TooLargeError) -> None:
        if not error.records:
            raise errors.MessageTooLargeError(str(error)) from error
        if self._settings.too_large == "stop":
            first = min(error.records, key=lambda record: record.offset)
            raise errors.MessageTooLargeError(
                f"{error}: offset {first.offset} of {first.topic}-{first.partition}, {first.size} bytes; "
                "raise max.message.bytes of the topic there, or let it go to a dead letter topic "
                "(too_large='dead-letter', --too-large dead-letter)"
            ) from error
        for record in error.records:
            topic = self._aside.put(record, str(error), self._clock.time_ms())
            self._target.create(topic, 1, {"max.message.bytes": str(2**31 - 1)})
            self._tell(
                catalog.RELAY_DEAD_LETTER,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                target=self._target.where,
                dead_letter_topic=topic,
            )

    # -- helpers --------------------------------------------------------------------------------------

    def _has_other_topics(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms < _LOOK_FOR_TOPICS_MS:
            return False
        self._looked_ms = now_ms
        now_there = self._source.topics(self._settings.topics)
        before = {(t.name, t.topic_id, t.partitions) for t in self._topics}
        if {(t.name, t.topic_id, t.partitions) for t in now_there} != before:
            return True
        return self._is_target_another()

    def _is_target_another(self) -> bool:
        """Whether a topic of the target was recreated."""
        there = self._target.facts(self._target_ids)
        return {name: fact.topic_id for name, fact in there.items()} != self._target_ids

    def _note_position(self, every_ms: int = 0) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._noted_ms >= every_ms and (to := self._progress.unnoted()):
            self._source.note(self._settings.name, to)
            self._noted_ms = now_ms

    def _is_stopped(self) -> bool:
        return self._stopped

    def _tell(self, notice: Notice, **values: Any) -> None:
        """Log a notice, or call `notify` with its message, without the relay's name."""
        name = self._settings.name
        if self._settings.notify is None:
            notice.say(relay=name, **values)
        else:
            self._settings.notify(notice.text(relay=name, **values).removeprefix(f"relay {name}: "))
