"""A class name stands for one thing: a reader who searches for it finds one class."""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.tree import modules, parsed

TWICE = {
    # A request has Kafka's name, and so has what it asks for or what it becomes: `requests.Lag`.
    "ConsumerGroupHeartbeat",
    "Lag",
    "LeaderEpochs",
    "OffsetCommit",
    "TopicMetadata",
    # A connection's state on the server, and a command's open file: no module has both.
    "Session",
}
"""The names of two classes, each with its reason; at most ten."""


def test_a_class_name_is_used_once() -> None:
    names = Counter(
        name
        for module in modules()
        for name in {n.name for n in ast.walk(parsed(module)) if isinstance(n, ast.ClassDef)}
    )
    assert {name for name, count in names.items() if count > 1} == TWICE
    assert len(TWICE) <= 10
