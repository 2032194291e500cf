"""When a batch of a sink is new, a repeat or an error, and until when an idempotency key counts."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock
from eosdb.errors import BatchDiffersError, OutOfOrderSequenceNumberError
from eosdb.log.once import SinkBatch, repeats
from tests.cases import each

pytestmark = pytest.mark.both_roads

HELD = frozenset({"rows", "plan"})


@each(
    ("batch_id", "held", "known", "outcome"),
    [
        (8, ("rows",), None, False),
        (7, ("rows",), HELD, True),
        (7, ("plan", "other"), HELD, True),
        (7, (), HELD, True),
        (7, ("rows",), None, True),
        (7, ("other",), HELD, BatchDiffersError),
        (3, ("rows",), HELD, True),
        (3, (), None, True),
        (3, ("rows",), None, BatchDiffersError),
        (3, ("other",), HELD, BatchDiffersError),
        (9, (), None, OutOfOrderSequenceNumberError),
        (10, ("rows",), None, OutOfOrderSequenceNumberError),
    ],
)
def test_a_batch_of_a_sink_whose_newest_is_the_seventh(
    batch_id: int,
    held: tuple[str, ...],
    known: frozenset[str] | None,
    outcome: bool | type[Exception],
) -> None:
    this = SinkBatch("s", batch_id, held, consecutive=True)
    if isinstance(outcome, bool):
        assert repeats(this, 7, known) is outcome
        return
    with pytest.raises(outcome):
        repeats(this, 7, known)
    if outcome is OutOfOrderSequenceNumberError:
        assert not repeats(this._replace(consecutive=False), 7, known)


@pytest.mark.parametrize(("later_ms", "is_known"), [(999, True), (1_000, False)])
def test_a_key_counts_for_as_long_as_the_setting_says(
    db_path: object, clock: ManualClock, later_ms: int, is_known: bool
) -> None:
    config = BrokerConfig(idempotency_retention_ms=1_000)
    with eosdb.connect(str(db_path), clock=clock, durability="off", config=config) as db:
        db.admin.create_topic("t")
        with db.begin() as tx:
            tx.publish("t", "v", idempotency_key="k")
        db.append_once("sink", 1, {eosdb.TopicPartition("t", 0): [eosdb.Record(value=b"v")]})
        clock.advance(later_ms)
        done = db.housekeeping()
        assert (done.expired_idempotency_keys, done.expired_sinks) == (not is_known, not is_known)
        with db.begin() as tx:
            assert tx.publish("t", "v", idempotency_key="k").duplicate is is_known
