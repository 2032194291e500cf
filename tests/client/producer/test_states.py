"""The eight states of a producer, and which may follow which (Kafka: TransactionManager.State)."""

from __future__ import annotations

import pytest

import eosdb
from eosdb.client.producer.settings import ProducerSettings
from eosdb.client.producer.state import LEGAL_PREVIOUS, ClientState, TransactionManager
from tests.cases import each

FOLLOWERS = {
    "UNINITIALIZED": "INITIALIZING",
    "INITIALIZING": "READY ABORTABLE_ERROR",
    "READY": "UNINITIALIZED IN_TRANSACTION",
    "IN_TRANSACTION": "COMMITTING_TRANSACTION ABORTING_TRANSACTION ABORTABLE_ERROR",
    # Not Kafka's: IN_TRANSACTION, where the file has refused the commit and nothing is decided.
    "COMMITTING_TRANSACTION": "READY INITIALIZING IN_TRANSACTION ABORTABLE_ERROR",
    "ABORTING_TRANSACTION": "READY INITIALIZING",
    "ABORTABLE_ERROR": "UNINITIALIZED ABORTING_TRANSACTION ABORTABLE_ERROR",
    "FATAL_ERROR": "",
}
"""Written the other way round than the table in the code; every state may end in FATAL_ERROR."""


def legal(old: ClientState, new: ClientState) -> bool:
    return new is ClientState.FATAL_ERROR or new.name in FOLLOWERS[old.name].split()


def test_the_table_is_kafkas_but_for_one_step() -> None:
    assert {(old, new) for new, olds in LEGAL_PREVIOUS.items() for old in olds} == {
        (old, new) for old in ClientState for new in ClientState if legal(old, new)
    }


@each("old", ClientState)
@each("new", ClientState)
def test_a_step_that_does_not_exist_is_refused_and_changes_nothing(
    old: ClientState, new: ClientState
) -> None:
    manager = TransactionManager(ProducerSettings(transactional_id="a"))
    manager.state = old
    if legal(old, new):
        manager.transition(new)
        assert manager.state is new
        return
    with pytest.raises(eosdb.IllegalStateError, match=new.name):
        manager.transition(new)
    assert manager.state is old


CALLS = {
    "init_transactions": "UNINITIALIZED",
    "begin_transaction": "READY",
    "send": "IN_TRANSACTION",
    "send_offsets_to_transaction": "IN_TRANSACTION",
    "commit_transaction": "IN_TRANSACTION",
    "abort_transaction": "IN_TRANSACTION",
}


@pytest.mark.slow
@pytest.mark.parametrize("state", ["UNINITIALIZED", "READY", "IN_TRANSACTION"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_the_wrong_state_changes_nothing(
    db: eosdb.Database, state: str, call: str
) -> None:
    db.admin.create_topic("t")
    producer = db.producer(transactional_id="a")
    if state != "UNINITIALIZED":
        producer.init_transactions()
    if state == "IN_TRANSACTION":
        producer.begin_transaction()
    offsets = {eosdb.TopicPartition("t", 0): eosdb.OffsetAndMetadata(1)}
    given = {"send": ("t", "v"), "send_offsets_to_transaction": (offsets, "g")}
    arguments: tuple[object, ...] = given.get(call, ())
    if CALLS[call] == state:
        getattr(producer, call)(*arguments)
        return
    with pytest.raises(eosdb.IllegalStateError, match=state):
        getattr(producer, call)(*arguments)
    assert producer.state == state


@pytest.mark.parametrize("call", ["begin_transaction", "send", "commit_transaction"])
def test_a_call_before_init_transactions_says_what_comes_first(
    db: eosdb.Database, call: str
) -> None:
    producer = db.producer(transactional_id="a")
    arguments = ("t", "v") if call == "send" else ()
    with pytest.raises(eosdb.IllegalStateError, match=r"call init_transactions\(\) first"):
        getattr(producer, call)(*arguments)
    producer.init_transactions()
    if call != "begin_transaction":
        with pytest.raises(eosdb.IllegalStateError, match=r"call begin_transaction\(\) first"):
            getattr(producer, call)(*arguments)
    producer.begin_transaction()
    with pytest.raises(eosdb.IllegalStateError, match="commit or abort the open transaction first"):
        producer.begin_transaction()
    with pytest.raises(eosdb.IllegalStateError, match="once for each producer is enough"):
        producer.init_transactions()


@pytest.mark.parametrize("call", ["init_transactions", "begin_transaction", "abort_transaction"])
def test_transactions_need_a_transactional_id(db: eosdb.Database, call: str) -> None:
    with pytest.raises(eosdb.IllegalStateError, match="transactional_id"):
        getattr(db.producer(), call)()
