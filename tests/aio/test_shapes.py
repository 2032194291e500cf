"""Who knows aiokafka finds its calls here; where they differ, the page about asyncio says so."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from eosdb.aio import AsyncConsumer, AsyncProducer

PAGE = (Path(__file__).parents[2] / "docs/asyncio.md").read_text(encoding="utf-8")
THEIRS: dict[type[Any], type[Any]] = {
    AsyncProducer: aiokafka.AIOKafkaProducer,
    AsyncConsumer: aiokafka.AIOKafkaConsumer,
}


def calls(found: type[Any]) -> dict[str, Any]:
    return {n: f for n, f in inspect.getmembers(found, inspect.isfunction) if n[0] != "_"}


@pytest.mark.parametrize("ours", THEIRS)
def test_every_call_of_aiokafka_is_there_or_on_the_page(ours: type[Any]) -> None:
    """A call with other parameters, or one that is awaited here and is not there, is on the page, too."""
    mine = calls(ours)
    for name, theirs in calls(THEIRS[ours]).items():
        same = (
            name in mine
            and inspect.iscoroutinefunction(mine[name]) == inspect.iscoroutinefunction(theirs)
            and list(inspect.signature(mine[name]).parameters)
            == list(inspect.signature(theirs).parameters)
        )
        assert same or f"`{name}" in PAGE, f"{name} differs"
