"""`process`: the whole consume–process–produce program in one call."""

from __future__ import annotations

import contextlib
import os
from typing import Any, TypeAlias, Unpack, overload

from eosdb.client.processor.config import BothMade, KeysMade, MadeOfBytes, ValuesMade
from eosdb.client.processor.handlers import AnyHandler
from eosdb.database import Database, Handlers, Topics, connect
from eosdb.model.type_variables import MadeKey, MadeValue

Where: TypeAlias = Database | str | os.PathLike[str]


@overload
def process(
    db: Where, topics: Topics, handler: Handlers[bytes, bytes], sink: str | None = None,
    *, until_idle_ms: int | None = None, **config: Unpack[MadeOfBytes],
) -> dict[str, float]: ...  # fmt: skip
@overload
def process(
    db: Where, topics: Topics, handler: Handlers[MadeKey, bytes], sink: str | None = None,
    *, until_idle_ms: int | None = None, **config: Unpack[KeysMade[MadeKey]],
) -> dict[str, float]: ...  # fmt: skip
@overload
def process(
    db: Where, topics: Topics, handler: Handlers[bytes, MadeValue], sink: str | None = None,
    *, until_idle_ms: int | None = None, **config: Unpack[ValuesMade[MadeValue]],
) -> dict[str, float]: ...  # fmt: skip
@overload
def process(
    db: Where, topics: Topics, handler: Handlers[MadeKey, MadeValue], sink: str | None = None,
    *, until_idle_ms: int | None = None, **config: Unpack[BothMade[MadeKey, MadeValue]],
) -> dict[str, float]: ...  # fmt: skip
def process(
    db: Where,
    topics: Topics,
    handler: AnyHandler,
    sink: str | None = None,
    *,
    until_idle_ms: int | None = None,
    **config: Any,
) -> dict[str, float]:
    """Call `handler` for each record of `topics`, and store its results, rows and the offset exactly once.

    `db` is an open database, or the path of a file. It runs until SIGTERM or SIGINT, or until no record
    has arrived for `until_idle_ms` and the group has read everything, and returns the metrics. What the
    arguments mean and what is raised: `Database.processor`, and `Processor.run`.
    """
    with contextlib.ExitStack() as cleanup:
        opened = db if isinstance(db, Database) else cleanup.enter_context(connect(db))
        return opened.processor(topics, handler, sink, **config).run(until_idle_ms)
