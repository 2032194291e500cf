"""`eosdb.integrations.django`: records in `transaction.atomic()`, on Django's own connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.apps.registry import Apps as StateApps
from django.db import connection, connections, migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState
from django.db.transaction import TransactionManagementError
from django.test import Client

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.integrations.django import join
from tests.integrations.with_django.shop import Order, records, rows

pytestmark = pytest.mark.slow

TP = TopicPartition("orders", 0)


def test_an_order_and_its_record_are_one_commit(db: eosdb.Database) -> None:
    client = Client(raise_request_exception=False)
    assert client.post("/orders?what=tea").content == b"0 False"
    assert client.post("/orders?what=bad+tea").status_code == 500
    assert client.post("/orders?what=cups").content == b"1 False"
    assert rows() == records(db) == ["tea", "cups"]


def test_a_request_that_is_repeated_is_stored_once(db: eosdb.Database) -> None:
    client = Client()
    assert [client.post("/orders?what=tea").content for _ in range(2)] == [b"0 False", b"0 True"]
    assert rows() == records(db) == ["tea"]


def test_a_savepoint_takes_its_row_and_its_record_back(db: eosdb.Database) -> None:
    with transaction.atomic():
        Order.objects.create(what="tea")
        join().publish("orders", "tea")
        with pytest.raises(ValueError, match="never"), transaction.atomic():
            Order.objects.create(what="never")
            join().publish("orders", "never")
            raise ValueError("never")
        Order.objects.create(what="cups")
        join().publish("orders", "cups")
    assert rows() == records(db) == ["tea", "cups"]


def test_what_is_called_on_commit_finds_the_record(db: eosdb.Database) -> None:
    found: list[list[str]] = []
    with transaction.atomic():
        join().publish("orders", "tea")
        transaction.on_commit(lambda: found.append(records(db)))
        assert records(db) == []
    assert found == [["tea"]]
    with transaction.atomic():
        join().publish("orders", "never")
        transaction.on_commit(lambda: found.append(records(db)))
        transaction.set_rollback(True)
    assert found == [["tea"]]


def test_offsets_of_a_group_are_committed_with_the_rows(db: eosdb.Database) -> None:
    with transaction.atomic():
        Order.objects.create(what="seen")
        join().commit_offsets("billing", {TP: OffsetAndMetadata(0)})
    assert db.broker.offset_fetch("billing") == {TP: OffsetAndMetadata(0)}
    fenced = eosdb.ConsumerGroupMetadata("billing", 3, "nobody")
    with pytest.raises(eosdb.UnknownMemberIdError), transaction.atomic():
        Order.objects.create(what="never")
        join().commit_offsets(fenced, {TP: OffsetAndMetadata(1)})
    assert rows() == ["seen"]


def test_outside_of_a_transaction_nothing_is_published(db: eosdb.Database) -> None:
    with pytest.raises(eosdb.errors.IllegalStateError, match=r"transaction\.atomic\(\)"):
        join().publish("orders", "x")
    with transaction.atomic():
        tx = join()
    with pytest.raises(eosdb.errors.IllegalStateError, match=r"transaction\.atomic\(\)"):
        tx.publish("orders", "x")
    assert records(db) == []


def test_a_transaction_that_is_broken_publishes_nothing(db: eosdb.Database) -> None:
    """Neither what Django has broken off, nor what SQLite has undone by itself."""
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            join().publish("orders", "x")
    with transaction.atomic():
        tx = join()
        Order.objects.create(what="lost")
        connection.connection.rollback()
        with pytest.raises(eosdb.errors.IllegalStateError, match="no transaction is open"):
            tx.publish("orders", "x")
        with pytest.raises(TransactionManagementError):
            Order.objects.create(what="by itself")
    assert rows() == records(db) == []


def test_a_deferred_transaction_that_has_read_is_told_what_to_set(db: eosdb.Database) -> None:
    connection.close()
    connection.settings_dict["OPTIONS"]["transaction_mode"] = "DEFERRED"
    try:
        with (
            pytest.raises(eosdb.DatabaseLockedError, match="transaction_mode"),
            transaction.atomic(),
        ):
            assert not rows()
            with db.begin() as tx:
                tx.publish("orders", "other")
            join().publish("orders", "x")
    finally:
        connection.settings_dict["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
    assert records(db) == ["other"]


def test_a_migration_adopts_the_file_that_djangos_connection_has_open(
    db: eosdb.Database, tmp_path: Path
) -> None:
    """As the page says: not atomic, because eosdb commits on a connection of its own."""

    def adopt(_: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
        name = editor.connection.settings_dict["NAME"]
        with eosdb.connect(name, adopt="wal") as adopted:
            adopted.admin.create_topic("orders")

    class Adoption(migrations.Migration):  # type: ignore[misc]
        atomic = False
        operations = (migrations.RunPython(adopt),)

    connection.close()
    connection.settings_dict["NAME"] = str(tmp_path / "new.db")
    migration = Adoption("0001_initial", "shop")
    with connection.schema_editor(atomic=migration.atomic) as editor:
        editor.create_model(Order)
        migration.apply(ProjectState(), editor)
    with transaction.atomic():
        Order.objects.create(what="tea")
        join().publish("orders", "tea")
    with eosdb.connect(tmp_path / "new.db") as adopted:
        assert rows() == records(adopted) == ["tea"]


def test_another_kind_of_database_is_told() -> None:
    connections.databases["other"] = {"ENGINE": "django.db.backends.dummy"}
    try:
        connections.configure_settings(connections.databases)
        with pytest.raises(eosdb.ConfigError, match="expected SQLite"):
            join("other")
    finally:
        del connections.databases["other"]
