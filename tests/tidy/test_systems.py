"""What only one system has is named in one room (decisions/0061)."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import modules

pytestmark = pytest.mark.slow

OF_ONE_SYSTEM = re.compile(
    r"inotify|kqueue|OFD|/proc\b|/dev/(?:shm|fd)\b|sys\.platform|posix_fa\w+|FULLFSYNC|os\.fsync\("
)
"""`os.fsync`, because it ends in the cache of a Mac's disk."""


def test_what_only_one_system_has_is_named_in_the_room_of_systems() -> None:
    named = {
        name: words
        for name, path in modules().items()
        if not name.startswith("eosdb.system")
        and (words := OF_ONE_SYSTEM.findall(path.read_text(encoding="utf-8")))
    }
    assert not named
