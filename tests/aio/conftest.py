"""A test that is a coroutine runs in an event loop of its own, on a file of its own with a topic `t`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.aio.running import run


@pytest.fixture
def db(tmp_path: Path) -> None:
    """The AsyncDatabase, which is opened in the loop."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    if not inspect.iscoroutinefunction(test := pyfuncitem.obj):
        return None
    fixtures: dict[str, Any] = pyfuncitem.funcargs
    given = {name: fixtures[name] for name in inspect.signature(test).parameters}
    run(fixtures["tmp_path"], lambda db: test(**given | {"db": db}))
    return True
