"""How a deliberate bug is planted: a patch of one decision or one effect, under a name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Patch = Callable[[], contextlib.AbstractContextManager[object]]
MUTANTS: dict[str, tuple[str, Patch]] = {}
"""By name: what is wrong, and the patch that makes it so."""


def mutant(what: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        MUTANTS[function.__name__] = (what, function)
        return function

    return register


def instead_of(what: str, owner: object, name: str) -> Callable[[Callable[..., Any]], object]:
    """A bug that is called in place of an attribute, which is its first argument."""

    def register(function: Callable[..., Any]) -> object:
        def patch() -> Any:
            original = getattr(owner, name)

            def instead(*arguments: Any, **options: Any) -> Any:
                return function(original, *arguments, **options)

            return mock.patch.object(owner, name, instead)

        MUTANTS[function.__name__] = (what, patch)
        return patch

    return register


def replaced(owner: object, name: str, make: Callable[[Any], Any]) -> Any:
    """Patch an attribute with what `make` makes of the original."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def both(*patches: Any) -> Any:
    @contextlib.contextmanager
    def together() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield

    return together()
