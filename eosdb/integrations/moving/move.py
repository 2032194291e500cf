"""The steps of a move. Each step first looks for finished work, so a killed move can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from eosdb.database import Database
from eosdb.errors import ConfigError, IllegalStateError
from eosdb.integrations.moving import plan as plans
from eosdb.integrations.moving.comparison import compare
from eosdb.integrations.moving.here import Here, There
from eosdb.integrations.relay import Relay
from eosdb.integrations.relay.file_ends import FileSource
from eosdb.integrations.relay.kafka_client import KafkaClient, kafka_settings
from eosdb.integrations.relay.kafka_ends import KafkaTarget
from eosdb.integrations.relay.planning import pauses as pauses_between_attempts
from eosdb.integrations.relay.settings import RelaySettings
from eosdb.integrations.relay.status import POSITIONS_TOPIC
from eosdb.integrations.relay.values import InterruptedRelayError
from eosdb.model.progress import Progress
from eosdb.model.topic_config import MOVED_TO, MOVING_TO
from eosdb.model.validation import check_text, check_whole
from eosdb.model.values import TopicPartition

T = TypeVar("T")
_LOOK_MS: Final = 200
_PLAN_PATIENCE_MS: Final = 10_000
_CLOSE: Final = 1_000
"""The topics are closed when at most this many offsets are left to relay, which takes a moment."""


class Move:
    """A move, built by `to_kafka`. Used by one thread."""

    def __init__(self, db: Database, client: KafkaClient, settings: RelaySettings) -> None:
        self._db: Final = db
        self._here: Final = Here(db)
        self._there: Final = There(client, settings.positions_topic)
        self._client: Final = client
        self._settings: Final = settings
        self._stopped = False
        self._relay: Relay | None = None

    def stop(self) -> None:
        """Make `execute` and `undo` return early. From any thread, and from signal handlers."""
        self._stopped = True
        if self._relay is not None:
            self._relay.stop()

    def close(self) -> None:
        """Close the connections to the cluster. The caller closes the database."""
        self._client.rest()

    def plan(self) -> plans.Plan:
        """The steps to do, and the obstacles. Changes nothing.

        If the cluster is unreachable, it retries for some seconds; then it raises the cluster's error.
        """
        try:
            return self._plan()
        except InterruptedRelayError as error:
            error.outcome = "not written"
            raise

    def _plan(self) -> plans.Plan:
        self._here.begin()
        facts = self._patiently(self._facts, _PLAN_PATIENCE_MS)
        return plans.plan(self._facts() if facts is None else facts)

    def execute(self, *, wait_ms: int = 0) -> plans.Plan:
        """Do the remaining steps, and return the resulting plan.

        Waits up to `wait_ms` for members to leave their groups, and again for open transactions to end;
        then it aborts those transactions. While the cluster is unreachable it retries. Raises
        IllegalStateError for obstacles, and the errors of `Relay.run`; the next call resumes.
        """
        check_whole("wait_ms", wait_ms, 0)
        offsets = self._patiently(lambda: self._execute(wait_ms))
        return self._plan() if offsets is None else plans.outcome(self._plan(), offsets)

    def undo(self) -> plans.Plan:
        """Open the topics of the file again, and return the plan for the next attempt.

        Records that were committed in the file are still relayed to the cluster. Raises IllegalStateError
        if the cluster has records that the file does not have.
        """
        self._patiently(self._undo)
        return self._plan()

    def _patiently(self, step: Callable[[], T], patience_ms: int | None = None) -> T | None:
        """Run a step, and retry it while the cluster is unreachable, for at most `patience_ms`. Returns
        None if stopped."""
        pauses, reported = pauses_between_attempts(), ""
        began = self._db.clock.monotonic_ms()
        while not self._stopped:
            try:
                return step()
            except InterruptedRelayError as error:
                self._client.rest()
                if patience_ms is not None and self._db.clock.monotonic_ms() - began > patience_ms:
                    raise
                if (text := f"{error}; trying again") != reported:
                    self._tell(text)
                reported = text
                self._db.clock.sleep_ms(next(pauses))
        return None

    # -- forwards -------------------------------------------------------------------------------------

    def _execute(self, wait_ms: int) -> plans.Offsets | None:
        """Do the remaining steps, and return the offsets committed in the cluster; None if there was
        nothing to do, or the move was stopped."""
        self._here.begin()
        facts = self._facts()
        plans.refuse(plans.plan(facts).obstacles, except_members=True)
        if plans.plan(facts).is_done:
            return None
        if not all(topic.is_closed for topic in facts.topics):
            self._bring_records(until_close=True)
            facts = self._without_members(wait_ms)
            if self._stopped:
                return None
            self._here.close(facts.topics, facts.address)
            self._tell(f"closed to writers: {', '.join(topic.name for topic in facts.topics)}")
        self._end_transactions(facts, wait_ms)
        self._bring_records()
        if self._stopped:
            return None
        facts = self._facts()
        names = [topic.name for topic in facts.topics]
        ids = self._client.topic_ids(names)
        offsets = _translated(facts, self._compare(facts))
        plans.refuse(plans.ahead(offsets, facts.groups_there))
        for group, committed in offsets.items():
            self._there.commit(group, committed)
            self._tell(f"offsets of group {group} are in the cluster")
        if (now := self._client.topic_ids(names)) != ids:
            gone = ", ".join(name for name, topic_id in ids.items() if now.get(name) != topic_id)
            raise IllegalStateError(
                f"{facts.address}: topic {gone} was deleted after the comparison, perhaps recreated. The "
                "file stays closed and has all records: find out who deletes topics there, and relay under "
                "another name"
            )
        self._here.finish(facts.topics, facts.address)
        self._tell(f"moved; let the programs connect to {facts.address} (bootstrap.servers)")
        return offsets

    def _without_members(self, wait_ms: int) -> plans.Facts:
        clock, is_reported = self._db.clock, False
        deadline = clock.monotonic_ms() + wait_ms
        while True:
            facts = self._facts()
            obstacles = plans.plan(facts).obstacles
            if not obstacles or self._stopped or clock.monotonic_ms() >= deadline:
                plans.refuse(obstacles)
                return facts
            plans.refuse(obstacles, except_members=True)
            if not is_reported:
                self._tell(f"waiting: {'; '.join(obstacles)}")
                is_reported = True
            clock.sleep_ms(_LOOK_MS)

    def _end_transactions(self, facts: plans.Facts, wait_ms: int) -> None:
        """End all open transactions. No new ones begin, because the topics are closed."""
        clock = self._db.clock
        deadline = clock.monotonic_ms() + wait_ms
        reported: set[plans.MovingTransaction] = set()
        while transactions := self._here.open_transactions(facts.topics):
            if self._stopped:
                return
            if clock.monotonic_ms() < deadline:
                clock.sleep_ms(_LOOK_MS)
                continue
            for transaction in transactions:
                if transaction in reported:  # The producer is still working.
                    clock.sleep_ms(_LOOK_MS)
                else:
                    self._tell(f"ending the open transaction {transaction}")
                    reported.add(transaction)
                self._here.end(transaction)

    def _bring_records(self, *, until_close: bool = False) -> None:
        """Relay all committed records. `until_close` stops with less than a chunk left, because an end is
        never reached while others write."""
        settings = self._settings

        def progress(done: int, total: int) -> None:
            if settings.on_progress is not None:
                settings.on_progress(done, total)
            if until_close and total - done <= _CLOSE:
                relay.stop()

        relay = Relay(
            FileSource(self._db),
            KafkaTarget(self._client, settings.positions_topic),
            self._db.clock,
            replace(settings, on_progress=progress),
        )
        with relay:
            self._relay = relay
            if not self._stopped:
                done = relay.run(until_caught_up=True)
                self._tell(f"{done.records} records relayed")
            self._relay = None

    # -- comparing ------------------------------------------------------------------------------------

    def _compare(self, facts: plans.Facts) -> dict[TopicPartition, plans.Compared]:
        """Compare all partitions. Raises IllegalStateError if a partition's records differ."""
        compared, differences = {}, list[str]()
        for topic in facts.topics:
            for number in topic.ends:
                tp = TopicPartition(topic.name, number)
                committed = [group.offsets[tp] for group in facts.groups if tp in group.offsets]
                topic_there = facts.there[topic.name]
                compared[tp] = comparison = compare(
                    self._here, self._there, topic, topic_there, tp, committed
                )
                if comparison.difference is not None:
                    differences.append(comparison.difference)
            self._tell(f"compared: {topic.name}")
        if differences:
            raise IllegalStateError("; ".join(differences))
        return compared

    # -- undo -----------------------------------------------------------------------------------------

    def _undo(self) -> None:
        self._here.begin()
        facts = self._facts()
        if not any(topic.is_closed for topic in facts.topics):
            self._tell("nothing is closed; nothing to take back")
            return
        self._end_transactions(facts, 0)
        self._bring_records()
        if self._stopped:
            return
        facts = self._facts()
        try:
            offsets = _translated(facts, self._compare(facts))
        except IllegalStateError as error:
            raise IllegalStateError(
                f"the file stays closed, because the cluster has records that it lacks: {error}. Bring "
                "them back first (eosdb relay --from), or open the topics anyway: eosdb topics alter TOPIC "
                f"--delete-config {MOVED_TO} --delete-config {MOVING_TO}"
            ) from None
        for text in plans.ahead(offsets, facts.groups_there):
            self._tell(f"{text}; in the file it reads those records again")
        self._here.open(facts.topics)
        self._tell(f"open to writers: {', '.join(topic.name for topic in facts.topics)}")

    # -- helpers --------------------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        if self._settings.notify is not None:
            self._settings.notify(text)

    def _facts(self) -> plans.Facts:
        here, there = self._here, self._there
        topics = here.topics(self._settings.topics)
        groups = here.groups(topics)
        positions = there.positions(self._settings.name, self._db.broker.cluster_id())
        topics_there = there.topics(topics, {tp.topic for tp in positions})
        return plans.Facts(
            there.where,
            topics,
            topics_there,
            positions,
            groups,
            there.groups(groups, topics_there),
            here.open_transactions(topics),
            others=here.others(topics),
            **here.counts(),
        )


def _translated(
    facts: plans.Facts, compared: Mapping[TopicPartition, plans.Compared]
) -> dict[str, dict[TopicPartition, int]]:
    """The cluster's offset for each committed offset in the file, by group."""
    return {
        group.name: {tp: compared[tp].offsets[at] for tp, at in group.offsets.items()}
        for group in facts.groups
    }


def to_kafka(
    db: Database,
    address: str,
    *,
    topics: Iterable[str] | None = None,
    name: str = "relay",
    config: Mapping[str, str] | None = None,
    positions_topic: str = POSITIONS_TOPIC,
    notify: Callable[[str], object] | None = None,
    on_progress: Progress | None = None,
) -> Move:
    """Build a move of topics (None: all whose names do not begin with two underscores) to the Kafka cluster
    at `address`.

    It resumes at the positions of the relay of this `name`; `config` and `positions_topic` are those of
    `relay.to_kafka`. `notify` is called with a sentence about each step. Raises ConfigError, also if the
    extra `kafka` is not installed.
    """
    check_text("address", address, ConfigError)
    client = KafkaClient(address, kafka_settings(config, os.environ))
    settings = RelaySettings(
        name=name,
        topics=topics,
        positions_topic=positions_topic,
        notify=notify or (lambda text: None),
        on_progress=on_progress,
    )
    return Move(db, client, settings)
