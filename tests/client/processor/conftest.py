"""A processor that runs until nothing comes any more."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from tests.client.processor.work import Run


@pytest.fixture
def run(db: eosdb.Database) -> Run:
    """Runs a processor of group `g` from `in` to `out` until nothing comes any more."""

    def run_it(handler: Any, sink: str | None = "out", **config: Any) -> eosdb.ProcessReport:
        topics = config.pop("topics", "in")
        return eosdb.process(
            db,
            topics,
            handler,
            sink,
            group_id="g",
            transactional_id="tx",
            until_idle_ms=50,
            **config,
        )

    return run_it
