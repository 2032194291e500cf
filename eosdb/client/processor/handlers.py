"""Handlers: what a processor calls for each record, with how many parameters, and which file's records are
being handled.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from eosdb.errors import ConfigError, IllegalStateError
from eosdb.model.type_variables import Key, Value
from eosdb.model.values import ConsumerRecord, ProducerRecord

Result = ProducerRecord | bytes | str
Results = Result | Iterable[Result] | None
Handler = Callable[[ConsumerRecord[Key, Value]], Results]
"""Turns a record into what is to be sent: a value for the sink under the record's key, a ProducerRecord,
several of those, or nothing."""
AnyHandler = Callable[..., Results]
"""A handler of one parameter, or of two: the second is the transaction that the record is processed in."""

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_running: Final = ContextVar[tuple[tuple[str, bool], ...]]("eosdb_handlers", default=())
"""The files of the handlers that run in this context, and whether each was given a transaction."""


def takes_transaction(handler: object) -> bool:
    """Whether a handler takes two parameters, the record and the transaction.

    It does when it requires two: one with a default is not passed, and `*args` alone takes the record.
    Raises ConfigError for what cannot be called with either.
    """
    if not callable(handler):
        raise ConfigError(f"handler: got {handler!r:.80}, expected a function of a record")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False  # Something built in, such as `bytes`, does not tell.
    required = [p for p in parameters if p.default is p.empty]
    count = sum(p.kind in _POSITIONAL for p in required)
    takes_one = any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters)
    named = [p.name for p in required if p.kind is p.KEYWORD_ONLY]
    if count > 2 or not takes_one or named:
        raise ConfigError(
            f"handler: {handler!r:.80} takes {inspect.signature(handler)}; expected handler(record), or "
            "handler(record, tx) to write tables of your own"
        )
    return count == 2


@contextlib.contextmanager
def running(file: str, *, has_transaction: bool) -> Iterator[None]:
    """A handler of this file's records runs in the block."""
    token = _running.set((*_running.get(), (file, has_transaction)))
    try:
        yield
    finally:
        _running.reset(token)


def check_may_begin(file: str) -> None:
    """Raises IllegalStateError inside a handler of this file's records: what it would store would stay,
    and be stored again, when the record is processed again."""
    for other, has_transaction in _running.get():
        if not _is_same(file, other):
            continue
        if has_transaction:
            raise IllegalStateError(
                "this handler is inside a transaction of this file already: its second parameter; write "
                "with tx.connection and tx.publish"
            )
        raise IllegalStateError(
            "db.begin() in a handler of one parameter would store its rows once for each time the record "
            "is tried; give the handler two parameters, `def handler(record, tx)`, and write with "
            "tx.connection and tx.publish: in one commit with the record's results and its offset"
        )


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def call(handler: AnyHandler, given: ConsumerRecord, tx: Any) -> list[object]:
    """What the handler returns, as a list."""
    returned = handler(given) if tx is None else handler(given, tx)
    if returned is None:
        return []
    one = isinstance(returned, (ProducerRecord, bytes, str))
    return [returned] if one else list(returned)  # type: ignore[arg-type]
