"""Cases that share the fixtures of one test, for a test that leaves things as they were.

A file and a server cost more than most requests: with `pytest.mark.parametrize` each case has its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_NAMED = type(pytest.param())
_Test = Callable[..., None]


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[_Test], _Test]:
    """Call the test with one case after the other. `names` and `cases` are as for `parametrize`."""

    every = [*cases]
    assert every

    def decorated(test: _Test) -> _Test:
        arguments = names.split(",") if isinstance(names, str) else names
        signature = inspect.signature(test)
        assert set(arguments) <= signature.parameters.keys()

        def of(case: Any) -> dict[str, Any]:
            if isinstance(case, _NAMED):
                case = case.values if len(arguments) > 1 else case.values[0]
            return dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True))

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for case in every:
                try:
                    test(**fixtures, **of(case))
                except BaseException as error:
                    error.add_note(f"{', '.join(arguments)} = {case!r}")
                    raise

        others = [it for name, it in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorated
