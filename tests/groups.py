"""Which tests share a worker of pytest-xdist with `--dist loadgroup`, because they share what is dear.

By folders, and not by the mark `xdist_group`: xdist 3.8 notes that where pytest 9.2 does not look, so that
its own `loadgroup` spreads such tests without a word.
"""

from __future__ import annotations

from typing import Final

import pytest

FOLDERS: Final = {"tests/spark/": "spark"}

try:
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]
except ModuleNotFoundError:
    pass
else:

    class ByFolder(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            groups = (group for folder, group in FOLDERS.items() if nodeid.startswith(folder))
            return next(groups, nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFolder | None:
        is_asked = config.getvalue("dist") == "loadgroup"
        return ByFolder(config, log) if is_asked else None
