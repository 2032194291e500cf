"""What is often done wrong first is answered by an error that says what was found, what was expected and
what to do; nothing is made meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import eosdb
import eosdb.aio
from eosdb import ConsumerRecord, Database, EosdbError, TopicPartition
from eosdb.errors import (
    ConfigError,
    DatabaseNotFoundError,
    HandlerFailedError,
    IllegalStateError,
    InvalidConfigError,
    InvalidRequestError,
    NotAnEosdbFileError,
    ReadOnlyDatabaseError,
    StorageError,
    UnknownTopicOrPartitionError,
)

URLS = {
    "sqlite:///shop.db": "such as 'shop.db'",
    "sqlite:////data/shop.db": "such as '/data/shop.db'",
    "sqlite+pysqlite:///shop.db": "such as 'shop.db'",
    "file:shop.db": "such as 'shop.db'",
    "file:///data/shop.db": "such as '/data/shop.db'",
    "s3://bucket/shop.db": "a URL",
    "localhost:9092": "an address; eosdb opens a file and needs no broker",
    "kafka-1.internal:9092,kafka-2.internal:9092": "an address",
    Path("sqlite:///shop.db"): "such as 'shop.db'",
    Path("file:///data/shop.db"): "such as '/data/shop.db'",
    Path("s3://bucket/shop.db"): "a URL",
    "file:shop.db?mode=ro": "such as 'shop.db'",
    "shop.db?mode=ro": "mode=ro is read_only=True",
    "shop.db\n": "leave out white space",
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("path", URLS)
def test_a_url_or_address_is_no_path_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path, read_only: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="path: got '") as refused:
        eosdb.connect(path, read_only=read_only)
    assert URLS[path] in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_a_file_of_such_a_name_is_named_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    eosdb.connect("./localhost:9092").close()
    eosdb.connect("localhost:9092").close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("where", "told"), [("nowhere/shop.db", "does not exist"), ("text/shop.db", "is not a folder")]
)
def test_a_missing_folder_is_named(tmp_path: Path, where: str, told: str, read_only: bool) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(DatabaseNotFoundError if read_only else StorageError) as refused:
        eosdb.connect(tmp_path / where, read_only=read_only)
    assert f"its folder {(tmp_path / where).parent} {told}; correct the path" in str(refused.value)


def _poll(db: Database) -> None:
    with db.consumer() as consumer:
        consumer.assign([TopicPartition("ordes", 0)])
        consumer.poll(0)


def _publish(db: Database) -> None:
    with db.begin() as tx:
        tx.publish("ordes", b"v")


TYPOS: dict[str, Callable[[Database], object]] = {
    "send": lambda db: db.producer().send("ordes", b"v"),
    "poll": _poll,
    "begin": _publish,
    "describe_topic": lambda db: db.admin.describe_topic("ordes"),
    "delete_topic": lambda db: db.admin.delete_topic("ordes"),
    "diagnose": lambda db: db.admin.diagnose(TopicPartition("ordes", 0)),
    "offsets": lambda db: db.broker.offsets(TopicPartition("ordes", 0)),
    "dead_letters": lambda db: list(db.dead_letters("ordes").letters()),
}


@pytest.mark.parametrize("name", ["create", "migrate", "read_only"])
def test_a_switch_that_is_no_bool_makes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: got 'no', expected True or False"):
        eosdb.connect(tmp_path / "a.db", **cast("Any", {name: "no"}))
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("call", TYPOS)
def test_a_typo_in_a_topic_has_a_guess_unless_acls_may_hide_the_name(
    db: Database, call: str
) -> None:
    db.admin.create_topic("orders")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"\(did you mean 'orders'\?\)"):
        TYPOS[call](db)
    db.admin.create_acls([eosdb.Acl("User:ANONYMOUS", "all", "topic", "ordes")])
    with pytest.raises(EosdbError) as refused:
        TYPOS[call](db)
    assert "orders" not in str(refused.value)


def test_a_partition_that_a_topic_lacks_has_no_guess(db: Database) -> None:
    db.admin.create_topic("orders")
    with pytest.raises(UnknownTopicOrPartitionError) as refused:
        db.broker.offsets(TopicPartition("orders", 5))
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize(("value", "kind"), [(1.5, "float"), (None, "NoneType"), ([1], "list")])
def test_a_topic_setting_of_another_type_is_told_by_its_type(
    db: Database, value: object, kind: str
) -> None:
    with pytest.raises(InvalidConfigError, match=rf"\({kind}\), expected a whole number or text"):
        db.admin.create_topic("t", config={"retention.ms": value})


def test_settings_are_given_by_name(db: Database, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="producer: got an argument of type dict, expected settings"
    ):
        db.producer({"linger_ms": 5})  # type: ignore[arg-type]

    async def run() -> None:
        async with eosdb.aio.connect(tmp_path / "a.db") as opened:
            opened.producer({"linger_ms": 5})  # type: ignore[arg-type]

    with pytest.raises(
        ConfigError, match="producer: got an argument of type dict, expected settings"
    ):
        asyncio.run(run())


@pytest.mark.parametrize(("result", "kind"), [(5, "int"), ({"a": 1}, "dict"), ([None], "NoneType")])
@pytest.mark.parametrize("parameters", [1, 2])
def test_what_a_handler_may_not_return_is_told_by_its_type(
    db: Database, result: Any, kind: str, parameters: int
) -> None:
    db.admin.create_topic("t")
    db.producer().send("t", b"v").result()
    handler: Any = (lambda _: result) if parameters == 1 else (lambda _, tx: result)
    with pytest.raises(
        HandlerFailedError, match=f"returned a value of type {kind}; expected bytes"
    ):
        eosdb.process(db, "t", handler, "t", group_id="g", transactional_id="x", max_attempts=1)


def test_process_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(DatabaseNotFoundError, match="create it with `eosdb init`"):
        eosdb.process(tmp_path / "nowhere.db", "t", print, group_id="g")
    assert os.listdir(tmp_path) == []


def _lists(records: list[ConsumerRecord]) -> None: ...


def _lists_and_rows(records: Sequence[ConsumerRecord[bytes, str]], tx: object) -> None: ...


def _one(record: eosdb.ConsumerRecord) -> None: ...


async def _awaited(records: list[ConsumerRecord]) -> None: ...


async def _awaited_one(record: ConsumerRecord[bytes, bytes]) -> None: ...


def test_a_handler_whose_annotation_contradicts_batch_is_refused(db: Database) -> None:
    def evaluated(records: object) -> None: ...

    evaluated.__annotations__["records"] = list
    without: Any = lambda records: None  # noqa: E731
    for handler in (_lists, _lists_and_rows, evaluated, without):
        with pytest.raises(ConfigError, match=r"batch: got False .* add batch=True"):
            db.processor("t", handler, group_id="g")
        db.processor("t", handler, group_id="g", batch=True)
    with pytest.raises(ConfigError, match=r"batch: got True .* leave batch out"):
        db.processor("t", _one, group_id="g", batch=True)
    db.processor("t", print, group_id="g", batch=True)

    async def run() -> None:
        async with eosdb.aio.connect(":memory:") as opened:
            await opened.admin.create_topic("t")
            for handler, batch in ((_awaited, False), (_awaited_one, True)):
                with pytest.raises(ConfigError, match=f"batch: got {batch}"):
                    await opened.process("t", handler, group_id="g", batch=batch)
                await opened.process("t", handler, group_id="g", batch=not batch, until_idle_ms=0)

    asyncio.run(run())


def test_a_key_behind_the_value_is_told_by_its_right_spelling(db: Database) -> None:
    db.admin.create_topic("t")
    misplaced: Any = ("v", "k")
    spelling = r"got 'k' behind the value; .*: {}\(topic, value, key=…\)"
    with pytest.raises(TypeError, match=spelling.format("send")):
        db.producer().send("t", *misplaced)
    with db.begin() as tx, pytest.raises(TypeError, match=spelling.format("publish")):
        tx.publish("t", *misplaced)

    async def run() -> None:
        async with eosdb.aio.connect(":memory:") as opened, opened.producer() as producer:
            for send in (producer.send, producer.send_and_wait):
                with pytest.raises(TypeError, match=spelling.format("send")):
                    await send("t", *misplaced)
            async with opened.begin() as tx:
                with pytest.raises(TypeError, match=spelling.format("publish")):
                    await tx.publish("t", *misplaced)

    asyncio.run(run())


def test_a_coroutine_where_a_function_is_wanted_is_refused() -> None:
    async def ask(_: object) -> None: ...

    async def run() -> None:
        async with eosdb.aio.connect(":memory:") as opened:
            with pytest.raises(ConfigError, match="is asynchronous; expected a plain function"):
                await (await opened.run(ask))
            async with opened.begin() as tx:
                with pytest.raises(ConfigError, match="is asynchronous; expected a plain function"):
                    await (await tx.run(ask))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("statement", "name"),
    [("CREATE TABLE topics (x)", "topics"), ("CREATE INDEX i ON records (key)", "records"),
     ("CREATE TABLE eosdb_mine (x)", "eosdb_mine"), ("PRAGMA journal_mode=DELETE", "journal_mode")],
)  # fmt: skip
def test_a_refused_statement_is_told_with_the_name(db: Database, statement: str, name: str) -> None:
    with (
        pytest.raises(InvalidRequestError, match=f"^{name}: the statement would"),
        db.engine.begin() as connection,
    ):
        connection.exec_driver_sql(statement)


def test_a_database_of_a_loop_that_was_not_awaited_says_so(db_path: Path) -> None:
    opening: Any = eosdb.aio.connect(db_path)
    for use in ("producer", "admin", "query", "path"):
        with pytest.raises(
            IllegalStateError, match=f"{use}: the database is not open yet: `db = await"
        ):
            getattr(opening, use)
    with pytest.raises(IllegalStateError, match="by `async with`, not by `with`"), opening:
        pass
    assert not hasattr(opening, "__len__")
    assert not hasattr(opening, "nothing_known")

    async def both_ways() -> None:
        await (await eosdb.aio.connect(db_path)).close()
        async with eosdb.aio.connect(db_path) as opened:
            assert opened.path == str(db_path)

    asyncio.run(both_ways())


def test_a_device_or_a_pipe_is_no_database_and_gets_nothing_beside_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        for create, read_only in ((True, False), (False, False), (True, True)):
            with pytest.raises(NotAnEosdbFileError, match="expected a regular file"):
                eosdb.connect(path, create=create, read_only=read_only)
        assert not list(path.parent.glob(f"{path.name}-*"))


def test_a_live_file_whose_journal_mode_was_switched_is_no_published_copy(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    with contextlib.closing(sqlite3.connect(db_path)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
    with pytest.raises(ReadOnlyDatabaseError) as refused:
        eosdb.connect(db_path)
    assert "another program has switched it from WAL mode" in str(refused.value)
    assert "is a published copy" not in str(refused.value)
    with contextlib.closing(sqlite3.connect(db_path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
    eosdb.connect(db_path).close()


def test_a_misspelt_name_is_guessed_by_python() -> None:
    with pytest.raises(AttributeError) as refused:
        cast("Any", eosdb).Databse  # noqa: B018
    assert (refused.value.name, refused.value.obj) == ("Databse", eosdb)
