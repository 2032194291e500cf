"""A program with Django is killed twenty times while it takes orders."""

from __future__ import annotations

import itertools
import os
import signal

import pytest
from django.db import connection
from django.test import Client

import eosdb
from tests.integrations.with_django.shop import records, rows

KILLS = 20


def take_orders(kill: int, said: int) -> None:
    """In a process of its own, until it is killed: each answer is said."""
    try:
        client = Client()
        for i in itertools.count():
            client.post(f"/orders?what=good-{kill}-{i}")
            os.write(said, b".")
    finally:
        os._exit(1)


@pytest.mark.crash
def test_an_order_and_its_record_are_one_commit_or_neither(db: eosdb.Database) -> None:
    answered: list[str] = []
    for kill in range(KILLS):
        connection.close()
        heard, said = os.pipe()
        if not (child := os.fork()):
            take_orders(kill, said)
        os.close(said)
        os.read(heard, 1)  # The first is answered; the others are in the middle of something.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(heard, "rb") as rest:
            answered += [f"good-{kill}-{i}" for i in range(1 + len(rest.read()))]
    assert rows() == records(db)
    assert set(answered) <= set(rows())
    assert len(rows()) <= len(answered) + KILLS
