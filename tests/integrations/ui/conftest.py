"""A served file, and one headless Chromium for all tests that need a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import eosdb
from eosdb.integrations.ui.server import UiServer
from tests.integrations.ui.files import make_file

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_QUIETLY = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "shop.db"
    make_file(made)
    return made


@pytest.fixture
def db(path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(path, read_only=True) as opened:
        yield opened


@pytest.fixture
def reading(db: eosdb.Database) -> Iterator[UiServer]:
    """The page as it is by default."""
    with UiServer(db) as server:
        yield server


@pytest.fixture
def changing(db: eosdb.Database, path: Path) -> Iterator[UiServer]:
    """The page with --allow-changes."""
    with UiServer(db, open_to_write=lambda: eosdb.connect(path)) as server:
        yield server


# Not for the session: while it is there, no other test of this process can run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if _CHROMIUM is None:
        pytest.skip("no Chromium is installed (scripts/setup.sh)")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=_QUIETLY, timeout=120_000
        )
        yield launched
        launched.close()
