"""The pictures of the documentation show what eosdb does now."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.make_pictures import IMAGES, PICTURES

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", PICTURES)
def test_a_committed_picture_is_what_its_story_draws(name: str, tmp_path: Path) -> None:
    drawn = PICTURES[name](tmp_path).drawn()
    ElementTree.fromstring(drawn)
    assert (IMAGES / name).read_text(encoding="utf-8") == drawn, "run `make docs`"
