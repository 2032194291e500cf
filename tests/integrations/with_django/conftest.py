"""Django's database, with a table of its own, adopted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

import eosdb
from tests.integrations.with_django.shop import Order


@pytest.fixture(autouse=True)
def db(tmp_path: Path) -> Iterator[eosdb.Database]:
    """Django's database, with a table of its own, adopted and open in eosdb, too."""
    before = connection.settings_dict["NAME"]
    connection.settings_dict["NAME"] = str(tmp_path / "django.db")
    connection.close()
    try:
        with connection.schema_editor() as editor:
            editor.create_model(Order)
        with eosdb.connect(tmp_path / "django.db", adopt="wal") as opened:
            opened.admin.create_topic("orders")
            yield opened
            assert opened.verify().ok
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
