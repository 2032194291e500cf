"""docs/internals/format.md has every table, column, trigger, kind of event and member, and no other."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import typing
from collections.abc import Iterator
from typing import Any

from eosdb.events import kinds
from eosdb.events.encoding import SHAPES, Fields
from eosdb.model.protocol.members import Assignor, Member, MemberState, Partitions, Share
from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.values import TopicPartition, TransactionState
from eosdb.store.schema import newest
from tests.format import vectors
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/internals/format.md").read_text(encoding="utf-8")
JSON: dict[Any, str] = {
    int: "integer", str: "text", bool: "boolean", TransactionState: "integer", bytes: "text",
    MemberState: "text", Partitions: "array of array",
}  # fmt: skip
OBJECTS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        TopicPartition, kinds.OffsetCommit, Member, Share, Assignor, kinds.ViewColumn, kinds.Acl,
        ScramCredential,
    )
}  # fmt: skip
DEFAULTS = {
    "None": "null", "-1": "−1", "False": "false", "True": "true", "()": "empty", "": "empty",
    "b''": "empty", "frozenset()": "empty", "MemberState.STABLE": "`Stable`",
}  # fmt: skip
"""How the page says them, where it is not as Python does."""


def section(title: str) -> str:
    return re.split(r"(?m)^#+ ", PAGE.partition(f"# {title}\n")[2])[0]


def cells(text: str) -> Iterator[list[str]]:
    for line in re.findall(r"(?m)^\|(.*)\|$", text):
        yield [cell.strip() for cell in line.split("|")]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def schema() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    newest.create(connection)
    return connection


def objects(of_type: str) -> dict[str, newest.SchemaObject]:
    return {found.name: found for found in newest.newest_schema() if found.type == of_type}


def test_the_page_has_every_table() -> None:
    described = set(re.findall(r"(?m)^### `(\w+)`$", PAGE))
    copies = {newest.in_baseline(table) for table in newest.materialized_tables()}
    assert described == set(objects("table")) - copies
    materialized = PAGE.partition("## Materialized tables")[2].partition("## Other tables")[0]
    assert set(re.findall(r"(?m)^### `(\w+)`$", materialized)) == set(newest.materialized_tables())


def test_the_page_has_every_column_with_its_type_and_whether_it_may_be_null() -> None:
    connection = schema()
    for table in re.findall(r"(?m)^### `(\w+)`$", PAGE):
        rows = [row for row in cells(section(f"`{table}`")) if row[0].startswith("`")]
        described = {name: kind for cell, kind, _ in rows for name in names(cell)}
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        assert described == {
            name: kind if not_null else f"{kind}, NULL" for _, name, kind, not_null, *_ in columns
        }, table
        assert all(meaning for *_, meaning in rows), table


def test_the_page_has_every_key_and_whether_a_table_has_rowids() -> None:
    connection = schema()
    for table, found in objects("table").items():
        if f"### `{table}`" not in PAGE or table == "records":
            continue
        intro = section(f"`{table}`").partition("| column")[0]
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        key = [name for *_, name in sorted((c[5], c[1]) for c in columns if c[5])]
        stated = re.search(r"Key: (all columns|`[^.;]*)", intro)
        assert stated, table
        assert (names(stated[1]) or [c[1] for c in columns]) == key, table
        assert ("WITHOUT ROWID" in found.sql) != ("rowid table" in intro), table
        assert ("STRICT" in found.sql) != ("not `STRICT`" in intro), table


def test_the_baselines_copies_are_as_the_page_says() -> None:
    connection = schema()
    for table in newest.materialized_tables():
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        if "checksum" not in [name for _, name, *_ in columns]:
            columns.append((len(columns), "checksum", "INT", 1, "0", 0))
        copy = connection.execute(f"PRAGMA table_info({newest.in_baseline(table)})").fetchall()
        assert copy == columns


def test_the_page_has_every_trigger() -> None:
    described = {
        names(row[0])[0]: names(row[1])[0]
        for row in cells(section("Triggers"))
        if row[0].startswith("`")
    }
    assert described == {name: found.table for name, found in objects("trigger").items()}


def members_on_the_page(title: str) -> dict[str, dict[str, str]]:
    """By kind or object: the type of each member, with its default; a kind's columns under its name."""
    listed: dict[str, dict[str, str]] = {}
    members: dict[str, str] = {}
    for first, kind, _ in cells(section(title)):
        if first.startswith("**`"):
            members = listed.setdefault(
                names(first)[0], {"": " ".join(names(kind))} if kind else {}
            )
        elif listed:
            members |= dict.fromkeys(names(first), kind)
    return listed


def json_type(hint: Any) -> str:
    parts = typing.get_args(hint)
    if type(None) in parts:
        (part,) = set(parts) - {type(None)}
        return f"{json_type(part)} or null"
    origin = typing.get_origin(hint)
    if origin is dict:
        return "object"
    if origin is tuple:
        inner = json_type(parts[0])
        return "array of array" if inner.startswith("array") else f"array of {inner}"
    return JSON[hint] if hint in JSON else OBJECTS[hint.__name__].__name__


def members_of(cls: Any, fields: tuple[str, ...]) -> dict[str, str]:
    hints, defaults = typing.get_type_hints(cls), cls._field_defaults
    members = {}
    for name in fields:
        members[name] = json_type(hints[name])
        if name in defaults:
            value = str(defaults[name])
            default = DEFAULTS.get(value) or (f"`{value}`" if value.isalpha() else value)
            members[name] += f", default {default}"
    return members


def test_the_page_has_every_kind_of_event_with_its_columns_and_members() -> None:
    described = members_on_the_page("Kinds of events")
    for kind, cls in kinds.KINDS.items():
        fields: Fields = SHAPES[kind][0]
        columns = [name for name in kinds.COLUMNS[1:] if name in cls._fields]
        members = {"": " ".join(columns), **members_of(cls, fields.names)}
        assert [*described.pop(kind).items()] == [*members.items()], kind
    assert not described


def test_the_page_has_every_object_in_members() -> None:
    described = members_on_the_page("Parts of values")
    for name, cls in OBJECTS.items():
        members = members_of(cls, cls._fields)
        assert [*described.pop(name).items()] == [*members.items()], name
    assert not described


def test_the_page_has_the_invariants_that_the_vectors_break() -> None:
    rows = [row for row in cells(section("Invariants")) if row[0] not in ("invariant", "---")]
    assert [name for name, *_ in rows] == list(vectors.BROKEN)
    folds = {name for name, _, reader in rows if reader == "fold"}
    assert folds == {"positions", "kinds", "places", "folded"}


def test_the_worked_transaction_is_that_of_the_file() -> None:
    path = ROOT / "tests/data/schema_0001.db"
    with contextlib.closing(
        sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    ) as connection:
        events = connection.execute(
            "SELECT position, kind, topic, partition, detail FROM eosdb_journal "
            "WHERE transactional_id = 'ended' ORDER BY position"
        ).fetchall()
    rows = [row for row in cells(section("A transaction, event by event")) if row[0].isdigit()]
    assert [row[:4] for row in rows] == [
        [str(at), f"`{kind}`", f"{topic}, {number}" if topic else "–", f"`{detail}`"]
        for at, kind, topic, number, detail in events
    ]


def test_the_page_is_of_the_newest_schema() -> None:
    number = newest.SCHEMA_VERSION
    for sentence in (
        f"ten years: schema {number}.",
        f"the schema's number: {number} |",
        f"| {number} | read it as this page says |",
        f"| above {number}, `read_version` of [`eosdb_file`](#eosdb_file) at most {number} |",
        f"**Within schema {number}**",
        f"Any other change is schema {number + 1}.",
        f"Schema {number} never has a kind",
        f"four digits: `{number:04}`",
    ):
        assert sentence in PAGE, sentence
    assert str(newest.APPLICATION_ID) in PAGE
