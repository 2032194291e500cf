"""Type variables for the keys and values of records in clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Plain `ConsumerRecord` is a record of anything. Consumers give `bytes | Any`, as typeshed does for
# `re.Match.group`: `bytes | None` would have everybody write a check that most topics make senseless.
# Defaults of type variables are for type checkers only, which know typing_extensions without its being
# installed.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key = TypeVar("Key", covariant=True, default=Any)
    Value = TypeVar("Value", covariant=True, default=Any)
    MadeKey = TypeVar("MadeKey", default=bytes)
    MadeValue = TypeVar("MadeValue", default=bytes)
else:
    from typing import TypeVar

    Key, Value = TypeVar("Key", covariant=True), TypeVar("Value", covariant=True)
    MadeKey, MadeValue = TypeVar("MadeKey"), TypeVar("MadeValue")
