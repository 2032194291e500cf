"""Whatever ids, groups, keys, values, headers and messages are made of, no command lets them steer a
terminal or forge a line: each is printed with escapes. JSON says exactly what they are."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.cases import each
from tests.cli.conftest import MAIN
from tests.cli.test_every_command import ENDING, LISTINGS, arguments
from tests.readers import copy_as_original

EVIL = "evil\x1b[2J\x07\r\nFORGED\x9b31m\u202e\u2028\x7f\u200b'\""
TP = TopicPartition("orders", 0)
STANDING_FOR = {"billing": EVIL, "open": EVIL, "alice": EVIL, "User:a": f"User:{EVIL}"}
"""What the commands of every file name, and what it is in this one."""
ON_DEAD_LETTERS = {"dlq list", "dlq replay", "dlq show"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which everything is evil that may be."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "input.ndjson").write_text(json.dumps({"a": EVIL}) + "\n")
    path = folder / "small.db"

    def refuse(record: ConsumerRecord) -> None:
        raise ValueError(EVIL)

    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("other")
        db.admin.create_view("typed", "orders", {"a": "TEXT"})
        with db.producer(client_id=EVIL) as producer:
            for _ in range(20):
                producer.send(
                    "orders", EVIL, key=EVIL, partition=0, headers=[(EVIL, EVIL.encode())]
                )
        eosdb.process(
            db, "orders", refuse,
            group_id=EVIL, transactional_id=f"done {EVIL}", until_idle_ms=0, max_attempts=1,
            dead_letter_topic="dead", consumer={"client_id": EVIL},
        )  # fmt: skip
        db.broker.offset_commit(EVIL, {TP: OffsetAndMetadata(1, EVIL)})
        db.append_once(EVIL, 1, {TP: [eosdb.Record(value=EVIL.encode())]}, held=(EVIL,))
        me = db.broker.init_producer_id(EVIL, 900_000)
        batch = eosdb.RecordBatch([eosdb.Record(value=EVIL.encode())], *me, 0, True)
        db.broker.append(TP, batch, transactional_id=EVIL)
        db.take_snapshot()
        db.admin.set_password(EVIL, "secret")
        db.admin.create_acls(
            [eosdb.Acl(f"User:{EVIL}", "read", "group", EVIL)]
            + [
                eosdb.Acl("User:*", "all", kind, "*")
                for kind in ("topic", "group", "transactional_id", "cluster")
            ]
        )
        db.publish_copy(f"file://{folder}/small-published")
    return path


def words(name: str, path: Path, original: Path) -> list[str]:
    given = arguments(name, path, original)
    if name in ON_DEAD_LETTERS:
        given = ["dead" if word == "orders" else word for word in given]
    if name == "transactions abort":
        with eosdb.connect(path, read_only=True) as db:
            (held,) = db.admin.open_transactions(TP)
        given[-1] = str(held.start_offset)
    return [STANDING_FOR.get(word, word) for word in given]


def texts(told: object) -> Iterator[str]:
    """Every text in it, at whatever depth, also in JSON that is itself a text."""
    if isinstance(told, str) and told[:1] in ("[", "{"):
        yield from texts(json.loads(told))
    elif isinstance(told, str):
        yield told
    elif isinstance(told, list | dict):
        for part in told.values() if isinstance(told, dict) else told:
            yield from texts(part)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ENDING))
def test_nothing_steers_a_terminal(
    tmp_path: Path, original: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on_a_terminal(monkeypatch)
    for output_format in ("table", "json", "jsonl", "csv") if name in LISTINGS else (None,):
        path = tmp_path / f"{output_format}.db"
        copy_as_original(original, path)
        command = words(name, path, original)
        command += [] if output_format is None else ["--format", output_format]
        env = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "1000", "EOSDB_USER_PASSWORD": "secret"}
        result = CliRunner().invoke(MAIN, command, input='{"a": 3}\n', env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert result.exit_code == 0, result.output
        for line in result.output.split("\n"):
            assert line.isprintable(), line
            assert not line.startswith("FORGED"), line
        if output_format == "json":
            told = [text for text in texts(json.loads(result.stdout)) if "FORGED" in text]
            assert [text for text in told if EVIL not in text] == []


@each(
    "command",
    [
        ["groups", "describe", EVIL + EVIL],
        ["groups", "delete", EVIL + EVIL, "--yes"],
        ["transactions", "describe", EVIL + EVIL],
        ["topics", "describe", EVIL],
        ["users", "remove", EVIL + EVIL],
        ["sql", f"SELECT '{EVIL}' FROM nowhere"],
    ],
)
def test_an_error_is_one_line(original: Path, command: list[str]) -> None:
    result = CliRunner().invoke(MAIN, ["--db", str(original), *command])
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.isprintable()


def test_a_file_with_such_a_name_is_named_in_an_error_of_one_line(
    original: Path, tmp_path: Path
) -> None:
    path = str(tmp_path / EVIL)
    copy_as_original(original, Path(path))
    for line, environment in (
        (["topics", "describe", path], "other.db"),
        (["verify", path, "--db", path], None),
        (["why", f"{path}2", "orders"], None),
        (["relay", path, "--max-bytes", EVIL], None),
    ):
        result = CliRunner().invoke(MAIN, line, env={"EOSDB_DB": environment})
        assert result.exit_code in (1, 2), result.output
        assert all(shown.isprintable() for shown in result.stderr.split("\n")), result.stderr
        assert "\nFORGED" not in result.stderr


def test_a_pipe_gets_values_as_they_are(original: Path) -> None:
    result = CliRunner().invoke(MAIN, ["--db", str(original), "consume", "orders", "--last", "1"])
    assert result.stdout_bytes == EVIL.encode() + b"\n"


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def isatty(stream: io.TextIOWrapper) -> bool:
        return stream.name != "<stdin>"

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", isatty, raising=False)
