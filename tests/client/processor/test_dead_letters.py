"""Dead letters are looked at, and sent back once each, whoever asks for it how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import eosdb
from eosdb import DeadLetters
from eosdb.client.processor.dead_letters import REPLAYED_FROM
from eosdb.client.transport import DirectTransport
from eosdb.model.requests import Request
from eosdb.model.threads import Fate
from tests.client.processor.work import bury, read

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _letters(db: eosdb.Database) -> None:
    """Six dead letters from two partitions of `in`."""
    db.admin.create_topic("in", partitions=2)
    db.admin.create_topic("dlq", partitions=2)
    feed(db, *range(6))
    bury(db, consumer={"partition_assignment_strategy": "range"})


def feed(db: eosdb.Database, *numbers: int) -> None:
    producer = db.producer(linger_ms=1_000)
    for i in numbers:
        producer.send(
            "in", b"%d" % i, key=b"k%d" % i, partition=i % 2, headers=[("own", b"%d" % i)]
        )
    producer.close()


def replayed(letters: DeadLetters) -> list[bool]:
    return [letter.is_replayed for letter in letters.letters()]


def test_letters_say_where_they_were_and_why(db: eosdb.Database) -> None:
    letters = list(db.dead_letters("dlq").letters())
    assert len(letters) == 6
    for letter in letters:
        assert letter.failure is not None
        assert (letter.failure.topic, letter.failure.error) == ("in", "ValueError")
        assert letter.failure.partition == int(letter.record.value) % 2
        assert not letter.is_replayed


def test_a_replay_sends_each_back_to_its_place_once(db: eosdb.Database) -> None:
    letters = db.dead_letters("dlq")
    assert letters.replay() == eosdb.ReplayReport(replayed=6, skipped=0)
    assert letters.replay() == eosdb.ReplayReport(replayed=0, skipped=6)
    assert replayed(letters) == [True] * 6
    back = [record for record in read(db, "in") if REPLAYED_FROM in dict(record.headers)]
    assert sorted((r.value, r.key, r.partition) for r in back) == [
        (b"%d" % i, b"k%d" % i, i % 2) for i in range(6)
    ]
    assert {name for record in back for name, _ in record.headers} == {"own", REPLAYED_FROM}


def test_what_fails_again_is_a_new_letter(db: eosdb.Database) -> None:
    letters = db.dead_letters("dlq")
    letters.replay()
    bury(db, consumer={"partition_assignment_strategy": "range"})
    assert sorted(replayed(letters)) == [False] * 6 + [True] * 6
    assert letters.replay() == eosdb.ReplayReport(replayed=6, skipped=6)


def test_chosen_letters_are_replayed_alone_and_remembered(db: eosdb.Database) -> None:
    letters = db.dead_letters("dlq")
    places = [(letter.record.partition, letter.record.offset) for letter in letters.letters()]
    chosen = [places[1], places[3]]
    assert letters.replay(chosen) == eosdb.ReplayReport(replayed=2, skipped=0)
    assert letters.replay(chosen) == eosdb.ReplayReport(replayed=0, skipped=2)
    assert replayed(letters) == [place in chosen for place in places]
    assert letters.letter(*places[1]).is_replayed
    assert not letters.letter(*places[0]).is_replayed
    assert letters.replay() == eosdb.ReplayReport(replayed=4, skipped=2)
    assert replayed(letters) == [True] * 6


def test_letters_may_be_sent_elsewhere(db: eosdb.Database) -> None:
    db.admin.create_topic("elsewhere")
    db.producer().send("dlq", b"put here by hand")
    letters = db.dead_letters("dlq")
    with pytest.raises(eosdb.InvalidRequestError, match="name a topic"):
        letters.replay()
    letters.replay(to="elsewhere")
    assert len(read(db, "in")) + len(read(db, "elsewhere")) == 6 + 7


def test_two_replays_at_once_repeat_nothing(db: eosdb.Database) -> None:
    class Overtaken(DirectTransport):
        """Another replay begins and ends when this one is about to commit."""

        happened = False

        def ask(
            self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
        ) -> list[Any]:
            if requests[0].name == "end_txn" and not self.happened:
                self.happened = True
                db.dead_letters("dlq").replay()
            return super().ask(requests, sync=sync, fate=fate)

    with pytest.raises(eosdb.ProducerFencedError):
        db.dead_letters("dlq", transport=Overtaken(db.broker)).replay()
    assert len(read(db, "in")) == 12


@pytest.mark.parametrize(
    "ask",
    [
        lambda letters: letters.letter(0, 999),
        lambda letters: letters.replay([(0, 999)]),
    ],
)
def test_what_is_no_letter_is_said_to_be_none(
    db: eosdb.Database, ask: Callable[[DeadLetters], Any]
) -> None:
    with pytest.raises(eosdb.ApiError, match=r"no record at offset|no dead letter|out of|outside"):
        ask(db.dead_letters("dlq"))


def test_a_topic_that_is_not_there(db: eosdb.Database) -> None:
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        list(db.dead_letters("nope").letters())


def test_letters_of_a_topic_made_anew_have_not_been_replayed(db: eosdb.Database) -> None:
    db.admin.create_topic("back", exist_ok=True)
    for count in (30, 50):
        db.admin.create_topic("letters")
        with db.producer() as producer:
            producer.send_many("letters", [f"{i}" for i in range(count)])
        assert db.dead_letters("letters").replay(to="back").replayed == count
        db.admin.delete_topic("letters")


def test_a_letter_older_than_the_retention_stays_and_is_replayed_with_its_timestamp(
    db: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    db.admin.create_topic("old", config={"retention.ms": -1})
    db.producer().send("old", b"a").result()
    clock.advance(30 * 86_400_000)
    bury(db, "old", "letters")
    db.housekeeping()
    assert [record.value for record in read(db, "letters")] == [b"a"]
    db.dead_letters("letters").replay()
    first, again = read(db, "old")
    assert first.timestamp == again.timestamp
