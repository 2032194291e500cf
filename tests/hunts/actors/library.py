"""The library's own ways to write."""

from __future__ import annotations

from typing import Final

from tests.hunts.actors.actor import Actor


class Library(Actor):
    name = "producer"
    summary = "the library's producer: transactions with offsets, one in seven aborted"
    module = "library"


ACTORS: Final[list[Actor]] = [Library()]
