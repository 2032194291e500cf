"""Both ways for rows, in C and in Python, and what tests compare of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import eosdb
from eosdb.errors import EosdbError
from eosdb.native import accelerator

ROADS = ("1", "0")
"""Values of EOSDB_NATIVE: with the accelerator, and without."""


@contextmanager
def road(setting: str) -> Iterator[None]:
    """Let files that are opened in the block be read and written so."""
    with mock.patch.dict(os.environ, {accelerator.VARIABLE: setting}):
        accelerator.rows.cache_clear()
        try:
            if setting != "0":
                assert accelerator.road() is True, f"{accelerator.road()}: scripts/setup.sh"
            yield
        finally:
            accelerator.rows.cache_clear()


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    """What a call returns, or its error."""
    try:
        return call(*arguments, **options)
    except EosdbError as error:
        return type(error), str(error)


def everything_read(
    db: eosdb.Database, tps: list[eosdb.TopicPartition], limit: int, **config: Any
) -> list[Any]:
    """What each way to read gives, record by record and as columns, with the errors at the end."""
    found: list[Any] = []
    for tp in tps:
        for columns in (False, True):
            with db.consumer(auto_offset_reset="earliest", **config) as consumer:
                consumer.assign([tp])
                poll = consumer.poll_columns if columns else consumer.poll
                while polled := outcome(poll, max_records=limit):
                    found.append(polled)
                    if isinstance(polled, tuple):
                        break
                    if isinstance(polled, eosdb.PolledColumns):
                        found.append(polled.to_arrow())
                found.append(outcome(consumer.position, tp))
    return found
