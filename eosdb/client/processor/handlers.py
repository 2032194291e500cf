"""Handlers, the user's functions for each record: their types and parameters, and a check against
`db.begin()` inside a handler."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Final

from eosdb.errors import ConfigError, IllegalStateError
from eosdb.model.values import ConsumerRecord, Key, ProducerRecord, Value

Result = ProducerRecord | bytes | str | tuple[Any, Any]
Results = Result | Iterable[Result] | None
Handler = Callable[[ConsumerRecord[Key, Value]], Results]
"""Turns a record into the records to send: returns a value for the sink, which gets the record's key; a
pair of key and value, as for `send_many`; a ProducerRecord; a list of these; or None."""
AnyHandler = Callable[..., Results]
"""A handler of one parameter, or of two: the second is the transaction in which the record is processed."""

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_ANNOTATION: Final = re.compile(
    r"([a-z_]+\.)*((?P<several>records|[Ll]ist|Sequence|Iterable)|(?P<one>ConsumerRecord))(\[.*\])?"
)
_running: Final = ContextVar[tuple[tuple[str, bool], ...]]("eosdb_handlers", default=())
"""The files of the handlers that run in this context, and whether each got a transaction."""


def takes_transaction(handler: object) -> bool:
    """Whether a handler requires two parameters, the record and the transaction. A second parameter with
    a default is not passed, and `*args` alone gets only the record. Raises ConfigError for an object that
    cannot be called with one or two arguments."""
    if not callable(handler):
        raise ConfigError(f"handler: got {handler!r:.80}, expected a function of a record")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False  # Some builtins, such as `bytes`, have no signature.
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


def is_asynchronous(handler: object) -> bool:
    """Whether calling the handler gives a coroutine or an asynchronous generator."""
    called = getattr(handler, "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        for function in (handler, called)
    )


def check_is_plain(function: object) -> None:
    """Raises ConfigError for a function whose coroutine nobody would await."""
    if is_asynchronous(function):
        raise ConfigError(
            f"function: {function!r:.80} is asynchronous; expected a plain function, because another "
            "thread calls it. Await outside of it, and pass it the result"
        )


def check_portion(handler: object, batch: bool) -> None:
    """Raises ConfigError if the annotation of a handler's first parameter says that it takes a list of
    records, but it would get one record; or the other way round. `records` without an annotation is a list:
    a loop over the fields of one record would raise nothing."""
    with contextlib.suppress(
        TypeError, ValueError
    ):  # `takes_transaction` refuses what has no signature.
        first = next(iter(inspect.signature(handler).parameters.values()), None)  # type: ignore[arg-type]
        given = "" if first is None else first.annotation
        text = given.__name__ if isinstance(given, type) else str(given)
        if first is not None and given is first.empty:
            text = first.name
        found = _ANNOTATION.fullmatch(text)
        if found and (found["one"] if batch else found["several"]):
            raise ConfigError(
                f"batch: got {batch} for {handler!r:.80}, which takes {text}; "
                + ("leave batch out" if batch else "add batch=True")
                + f", or take {'records: list[ConsumerRecord]' if batch else 'record: ConsumerRecord'}"
            )


def check_may_begin(file: str) -> None:
    """Check that no handler for records of this file is running. A block of `db.begin()` inside a handler
    would commit its rows once for each attempt. Raises IllegalStateError."""
    for other, has_transaction in _running.get():
        if not _is_same(file, other):
            continue
        if has_transaction:
            raise IllegalStateError(
                "this handler has a transaction of this file already, its second parameter; write "
                "with tx.connection and tx.publish"
            )
        raise IllegalStateError(
            "db.begin() in a handler of one parameter would store its rows again at each attempt; give the "
            "handler two parameters, `def handler(record, tx)`, and write with tx.connection and "
            "tx.publish: in one commit with the record's results and its offset"
        )


def _is_same(path: str, other: str) -> bool:
    if path == other:
        return True
    with contextlib.suppress(OSError):
        return os.path.samefile(path, other)
    return False


_RECORDS: Final = (ProducerRecord, tuple)
_NOT_SEVERAL: Final = (ProducerRecord, bytes, str, Mapping)


def call(
    handler: AnyHandler, given: ConsumerRecord | list[ConsumerRecord], tx: Any, file: str
) -> list[object]:
    """Call the handler for a record of this file, and return its results as a list.

    The mark that it runs is in a context of the call's own, which C code leaves: an interrupt cannot leave
    the mark behind.
    """
    return copy_context().run(_call, handler, given, tx, file)


def _call(handler: AnyHandler, given: Any, tx: Any, file: str) -> list[object]:
    _running.set((*_running.get(), (file, tx is not None)))
    returned = handler(given) if tx is None else handler(given, tx)
    if returned is None:
        return []
    # Anything but an iterable counts as one result. If its type is wrong, `send` raises an error.
    if isinstance(returned, _NOT_SEVERAL) or not isinstance(returned, Iterable):
        return [returned]
    results = list(returned)
    # A tuple is a pair, as for `send_many`, unless it has records or pairs.
    is_pair = type(returned) is tuple and not any(isinstance(one, _RECORDS) for one in results)
    return [returned] if is_pair and results else results
