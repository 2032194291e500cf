"""What users test with: the plugin's fixtures, and their program under many fault schedules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.testing import FaultyTransport, Instance, NotExactlyOnceError, check_exactly_once

pytestmark = pytest.mark.slow

SOURCE = TopicPartition("orders", 0)
ORDERS = [f"order {i}" for i in range(12)]
BILLS = [order.upper() for order in ORDERS]


def test_the_fixtures_give_a_database_a_clock_and_bad_networks(
    eosdb_db: eosdb.Database,
    eosdb_clock: ManualClock,
    eosdb_faults: Callable[..., FaultyTransport],
) -> None:
    eosdb_db.admin.create_topic("t")
    producer = eosdb_db.producer(transport=eosdb_faults(seed=2, lose_request=0.4))
    before = eosdb_clock.time_ms()
    for i in range(20):
        producer.send("t", str(i)).result()
    assert eosdb_clock.time_ms() > before, "waiting for the network moved the clock"
    assert eosdb_db.broker.offsets(TopicPartition("t", 0)).log_end_offset == 20


def exactly_once(app: Instance) -> None:
    producer = app.producer(transactional_id="billing")
    producer.init_transactions()
    consumer = app.consumer("billing")
    consumer.assign([SOURCE])
    while records := consumer.poll(max_records=3):
        with producer.transaction():
            for record in records:
                assert isinstance(record.value, bytes)
                producer.send("bills", record.value.upper())
            producer.send_offsets_to_transaction(
                consumer.position_offsets(), consumer.group_metadata()
            )


def at_least_once(app: Instance) -> None:
    """Output first, offsets after it: whoever dies in between does it again."""
    producer, consumer = app.producer(), app.consumer("billing")
    consumer.assign([SOURCE])
    while records := consumer.poll(max_records=3):
        for record in records:
            assert isinstance(record.value, bytes)
            producer.send("bills", record.value.upper())
        producer.flush()
        consumer.commit()


def at_most_once(app: Instance) -> None:
    """Offsets first: whoever dies in between never does it."""
    producer, consumer = app.producer(), app.consumer("billing")
    consumer.assign([SOURCE])
    while records := consumer.poll(max_records=3):
        consumer.commit()
        for record in records:
            assert isinstance(record.value, bytes)
            producer.send("bills", record.value.upper())
        producer.flush()


def test_a_correct_program_passes_under_every_schedule(seeds: list[int]) -> None:
    schedules = 20 * len(seeds)
    counts = check_exactly_once(
        exactly_once, {"orders": ORDERS}, {"bills": BILLS}, schedules=schedules
    )
    for event in ("kill", "zombie", "node crash", "crash between decision and markers"):
        assert counts[event] > 0


@pytest.mark.parametrize(
    ("program", "flaw"), [(at_least_once, "lost \\[\\], doubled"), (at_most_once, "lost \\[b'")]
)
def test_a_wrong_program_is_caught_and_the_schedule_named(
    program: Callable[[Instance], None], flaw: str
) -> None:
    with pytest.raises(NotExactlyOnceError, match=flaw) as caught:
        check_exactly_once(program, {"orders": ORDERS}, {"bills": BILLS})
    seed = int(str(caught.value).partition("schedule seed=")[2].split()[0])
    with pytest.raises(NotExactlyOnceError) as again:
        check_exactly_once(program, {"orders": ORDERS}, {"bills": BILLS}, seed=seed, schedules=1)
    assert str(again.value) == str(caught.value), "the schedule can be repeated"


def test_order_is_checked() -> None:
    with pytest.raises(NotExactlyOnceError, match="out of order"):
        check_exactly_once(exactly_once, {"orders": ORDERS}, {"bills": BILLS[::-1]}, schedules=1)
    check_exactly_once(
        exactly_once, {"orders": ORDERS}, {"bills": BILLS[::-1]}, schedules=1, ordered=False
    )


def test_a_bug_of_the_program_is_raised_as_it_is() -> None:
    def buggy(app: Instance) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        check_exactly_once(buggy, {"orders": ORDERS}, {"bills": BILLS}, schedules=1)


def test_a_program_that_never_returns_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosdb.testing.exactly_once._LONGEST_PEACE", 500)

    def endless(app: Instance) -> None:
        consumer = app.consumer("billing")
        consumer.assign([SOURCE])
        while True:
            consumer.poll()

    with pytest.raises(NotExactlyOnceError, match="must return when nothing is left to read"):
        check_exactly_once(endless, {"orders": ORDERS}, {"bills": BILLS}, schedules=1)


def test_everything_that_is_promised_is_there() -> None:
    import eosdb.testing

    assert all(getattr(eosdb.testing, name) for name in eosdb.testing.__all__)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = eosdb.testing.no_such_thing
