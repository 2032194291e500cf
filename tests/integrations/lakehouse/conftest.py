"""A table of each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.lakehouse.tables import FORMATS, Table


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    folder = tmp_path / request.param
    folder.mkdir()
    return Table(request.param, folder)
