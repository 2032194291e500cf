"""Somebody guesses passwords, over many connections at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import eosdb
from eosdb.wire.login import MECHANISMS
from eosdb.wire.parking import REAL_TIME
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire.peer import Peer
from tests.wire.secured import FAILED, PASSWORD, USER, hello, log_in, plain, say
from tests.wire.test_sasl import Scram

pytestmark = pytest.mark.slow

AN_HOUR_MS = 3_600_000


@pytest.fixture
def guarded(db: eosdb.Database) -> Iterator[Server]:
    db.admin.set_password(USER, PASSWORD)
    with db.serve(require_sasl=True) as made:
        yield made


def guess(server: Server, mechanism: str) -> None:
    with Peer(server) as peer:
        hello(peer, mechanism)
        if mechanism == "PLAIN":
            last = say(peer, plain(USER, "guessed"))
        else:
            client = Scram(mechanism, USER, "guessed")
            challenge = say(peer, b"n,," + client.first.encode())
            last = say(peer, client.answer(challenge.auth_bytes))
        assert last.error_code == FAILED


def at_once(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    found = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in found:
        thread.start()
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_connections_do_not_make_it_faster(guarded: Server, mechanism: str) -> None:
    """Ten a second; slower on a busy machine, and never faster."""
    began_ms = REAL_TIME.monotonic_ms()
    for thread in at_once(12, lambda: guess(guarded, mechanism)):
        thread.join()
    assert REAL_TIME.monotonic_ms() - began_ms >= 1_200


def crowd(server: Server) -> None:
    """As many are waiting to be refused as it takes an hour to refuse."""
    server._refusals.wait(REAL_TIME.monotonic_ms() - 200, threading.Event())
    server._refusals._told_ms += AN_HOUR_MS


def test_whoever_knows_a_password_does_not_wait_for_those_who_guess(guarded: Server) -> None:
    crowd(guarded)
    guessing = at_once(3, lambda: guess(guarded, "PLAIN"))
    for _ in range(3):
        with Peer(guarded) as peer:
            log_in(peer)
    assert all(thread.is_alive() for thread in guessing)
    guarded.close()


def test_a_server_that_closes_does_not_wait_for_them_either(guarded: Server) -> None:
    crowd(guarded)
    told_ms = guarded._refusals._told_ms
    (guessing,) = at_once(1, lambda: guess(guarded, "PLAIN"))
    eventually(lambda: guarded._refusals._told_ms != told_ms)
    guarded.close()
    guessing.join()
    assert not guarded._connections
