"""What the Tab key offers: names of the file that the line names, and never an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.cli.main import main

MAIN: Any = main


def offered(*words: str) -> list[str]:
    """The completions of the last word."""
    asked = ShellComplete(MAIN, {}, "eosdb", "_EOSDB_COMPLETE")
    return [item.value for item in asked.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with eosdb.connect(path) as db:
        for topic in ("orders", "orders.dlq", "invoices"):
            db.admin.create_topic(topic)
        for group in ("billing", "__eosdb.ingest:orders:f"):
            db.broker.offset_commit(group, {TopicPartition("orders", 0): OffsetAndMetadata(0)})
        db.producer(transactional_id="shop-1").init_transactions()
    return path


def test_topics_groups_and_transactional_ids_of_the_file(shop: str) -> None:
    assert offered("consume", shop, "") == ["invoices", "orders", "orders.dlq"]
    assert offered("consume", shop, "ord") == ["orders", "orders.dlq"]
    assert offered("consume", shop, "orders", "in") == ["invoices"]
    assert offered("groups", "describe", shop, "") == ["billing"]
    assert offered("groups", "describe", shop, "__e") == ["__eosdb.ingest:orders:f"]
    assert offered("consume", shop, "orders", "--group", "b") == ["billing"]
    assert offered("transactions", "describe", shop, "") == ["shop-1"]
    assert offered("journal", shop, "--topic", "i") == ["invoices"]
    assert offered("why", shop, "or") == ["orders", "orders.dlq"]


def test_the_file_is_named_in_every_way(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("--db", shop, "consume", "i") == ["invoices"]
    assert offered("topics", "--db", shop, "describe", "i") == ["invoices"]
    assert offered("consume", "--db", shop, "i") == ["invoices"]
    assert offered("consume", "i") == ["i"]  # The shell completes FILE.
    monkeypatch.setenv("EOSDB_DB", shop)
    assert offered("consume", "i") == ["invoices"]
    assert offered("consume", shop, "i") == ["invoices"]


def test_a_file_that_cannot_be_read_has_no_names_and_no_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0 and then nonsense" * 100)
    for path in ("none.db", "damaged.db", ".", "\ud800"):
        assert offered("consume", "--db", str(tmp_path / path), "") == []
    assert not (tmp_path / "none.db").exists()
    assert capfd.readouterr() == ("", "")


def test_looking_writes_nothing_and_waits_for_nobody(shop: str) -> None:
    with eosdb.connect(shop) as db:
        before = Path(shop).read_bytes()
        with db.begin():
            assert offered("consume", shop, "i") == ["invoices"]
        assert Path(shop).read_bytes() == before
