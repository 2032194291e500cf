"""A group, by the assignor of its members."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from tests.client.consumer.members import Events, Member, maker


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """A key of `SETTINGS`, given by `parametrize` or by the module."""
    given: Any = getattr(request, "param", None) or request.module.KIND
    return str(given)


@pytest.fixture
def member(db: eosdb.Database, kind: str, events: Events) -> Member:
    """With the topic "t" of four partitions."""
    db.admin.create_topic("t", partitions=4)
    return maker(db, kind, events)
