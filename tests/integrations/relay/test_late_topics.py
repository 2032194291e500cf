"""Topics that are created while a relay runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock
from eosdb.integrations import relay
from tests.integrations.relay.contents import contents

pytestmark = pytest.mark.slow

_ENOUGH = 60
"""Chunks, of a second each."""


def test_a_new_topic_comes_along_though_the_others_are_never_silent(
    tmp_path: Path, target: eosdb.Database
) -> None:
    clock, seen = ManualClock(), 0
    with eosdb.connect(tmp_path / "busy.db", clock=clock, durability="off") as source:
        source.admin.create_topic("orders")
        producer = source.producer()
        producer.send("orders", b"first").result()

        def more(_done: int, _total: int) -> None:
            nonlocal seen
            seen += 1
            clock.advance(1_000)
            producer.send("orders", b"%d" % seen).result()
            if seen == 3:
                source.admin.create_topic("late")
                producer.send("late", b"here").result()
            arrived = "late" in target.admin.list_topics() and contents(target, "late")
            if arrived or seen == _ENOUGH:
                copy.stop()

        with relay.to_file(source, target, on_progress=more) as copy:
            copy.run()
        assert [content.value for content in contents(target, "late")] == [b"here"]
    assert seen < _ENOUGH
