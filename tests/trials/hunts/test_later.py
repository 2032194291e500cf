"""A few of the kills of `python -m tests.trials.hunts.later`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import each
from tests.trials.hunts.later import Round


@pytest.mark.crash
@each("face", ("plain", "rows", "aio"))
def test_killed_deliverers_and_processors_lose_double_and_hasten_nothing(
    tmp_path: Path, face: str
) -> None:
    assert Round(tmp_path, face, 0).run(kills=2) == []
