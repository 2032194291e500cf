"""A command is given its file in one of four places, and no word is taken for the file that may be another
argument."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.cli.file_command import Session
from tests.cli.conftest import MAIN, Run
from tests.cli.test_every_command import COMMANDS

WITHOUT_FILE = {"fetch"}


class Named(BaseException):
    """Raised in place of opening the file that a command was given."""


@pytest.fixture
def not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(session: Session) -> NoReturn:
        raise Named(session.path)

    monkeypatch.setattr(Session, "named_path", name)


def named(line: list[str], environment: str | None = None) -> str | None:
    with pytest.raises(Named) as raised:
        result = CliRunner().invoke(MAIN, line, env={"EOSDB_DB": environment})
        raise AssertionError(result.output)
    (path,) = raised.value.args
    assert path is None or isinstance(path, str)
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("not_opened")
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_FILE))
def test_every_command_is_given_its_file_in_each_of_the_places(name: str, db_path: Path) -> None:
    eosdb.connect(db_path).close()
    file, words = str(db_path), name.split()
    stand_ins = {"INPUT": __file__, "OPEN": "0", "PICTURE": "x.svg"}
    arguments = [
        stand_ins.get(word, word) for word in COMMANDS[name] if word not in ("FOREIGN", "ADOPTED")
    ]
    for line in (
        [*words, file, *arguments],
        [*words, *arguments, "--db", file],
        [*words[:1], "--db", file, *words[1:], *arguments],
        ["--db", file, *words, *arguments],
    ):
        assert named(line) == file, line
    assert named([*words, *arguments], file) == file
    assert named(["--db", "other.db", *words, *arguments, "--db", file], "third.db") == file


@pytest.mark.usefixtures("not_opened")
def test_a_word_is_the_file_if_it_can_be_nothing_else(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    file = str(db_path)
    for line in (
        ["sql", file, "SELECT 1"],
        ["why", file, "orders"],
        ["log", "dump", file, "orders", "0"],
        ["dlq", "show", file, "orders/0/17"],
        ["why", file, "--topic", "orders"],
        ["why", "--topic", "orders", file, "--partition=0"],
        ["consume", file, "--topic", "orders"],
        ["topics", "describe", "--topic", "orders", file],
        ["groups", "reset-offsets", "--group", "g", file, "--topic", "orders", "--to-latest"],
        ["transactions", "describe", "--transactional-id", "a", file],
        ["verify", file],
    ):
        assert named(line, "third.db") == file, line
        assert named(["--db", "third.db", *line]) == file, line


@pytest.mark.usefixtures("not_opened")
def test_a_word_that_may_be_an_argument_is_one_where_the_file_is_named() -> None:
    for line in (["topics", "describe", "a"], ["consume", "a", "b"], ["why", "a", "0"]):
        assert named(line, "shop.db") == "shop.db"
        assert named(["--db", "shop.db", *line], "other.db") == "shop.db"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["topics", "describe", "FILE"], "--db 'FILE' to open the first, or --db 'shop.db'"),
        (
            ["groups", "delete", "FILE", "billing"],
            "--db 'FILE' to open the first, or --db 'shop.db'",
        ),
        (["verify", "FILE", "--db", "shop.db"], "the file is named twice"),
        (["verify", "FILE", "orders"], "unexpected extra argument"),
    ],
)
def test_what_has_two_meanings_is_refused_with_both_spellings(
    db_path: Path, line: list[str], message: str
) -> None:
    eosdb.connect(db_path).close()
    words = [word.replace("FILE", str(db_path)) for word in line]
    result = CliRunner().invoke(MAIN, words, env={"EOSDB_DB": "shop.db"})
    assert result.exit_code == 2
    assert message.replace("FILE", str(db_path)) in result.stderr


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (["topics", "--bootstrap-server", "localhost:9092", "--list"], "eosdb topics list FILE …"),
        (["topics", "list", "--bootstrap-server", "localhost:9092"], "eosdb topics list FILE …"),
        (["topics", "--list"], "eosdb topics list FILE …"),
        (["groups", "--describe", "--group", "g"], "eosdb groups describe FILE …"),
        (
            ["consume", "orders", "--partition", "1", "--offset", "7", "--db", "FILE"],
            "eosdb inspect log FILE orders/1 --from-offset 7 --print-data-log",
        ),
        (
            ["topics", "create", "orders", "--replication-factor", "3", "--db", "FILE"],
            "got 3; a file has one replica: give 1, or leave the option out",
        ),
    ],
)
def test_an_option_of_kafkas_tools_is_answered_with_the_command(
    line: list[str], answer: str
) -> None:
    result = CliRunner().invoke(MAIN, line, prog_name="eosdb")
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(answer)


def test_kafkas_options_are_the_arguments(run: Run) -> None:
    run("init")
    run("topics", "create", "--topic", "orders", "--partitions", "2", "--replication-factor", "1")
    assert run("produce", "--topic", "orders", "--partition", "1", stdin="a\n").exit_code == 0
    answer = run("consume", "--topic", "orders", "--partition", "1", "--offset", "0").stderr
    command = shlex.split(answer.partition("eosdb ")[2].replace(" FILE", ""))
    assert len(run(*command, "--format", "jsonl").stdout.splitlines()) == 1
    consumed = run("consume", "--topic", "orders", "--group", "g", "--from-beginning")
    assert consumed.stdout == "a\n"
    shown = run("groups", "describe", "--group", "g", "--format", "csv").stdout.splitlines()
    assert [line.split(",")[:4] for line in shown[1:]] == [
        ["g", "orders", "0", "0"],
        ["g", "orders", "1", "1"],
    ]


@pytest.mark.usefixtures("not_opened")
def test_kafkas_options_leave_no_word_where_the_variable_names_the_file() -> None:
    assert named(["groups", "describe", "--group", "g"], "shop.db") == "shop.db"
    assert named(["consume", "--topic", "orders"], "shop.db") == "shop.db"


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (["sql"], "QUERY"),
        (["consume"], "TOPICS..."),
        (["backup"], "TARGET"),
        (["topics", "create"], "TOPIC"),
        (["produce", "--fixed-key", "k"], "TOPIC"),
    ],
)
def test_if_only_the_file_is_given_the_error_names_what_is_missing(
    db_path: Path, line: list[str], missing: str
) -> None:
    eosdb.connect(db_path).close()
    result = CliRunner().invoke(MAIN, [*line, str(db_path)], env={"EOSDB_DB": None})
    assert (result.exit_code, f"Missing argument '{missing}'" in result.stderr) == (2, True)


@pytest.mark.parametrize("line", [["verify"], ["consume", "orders"], ["why", "orders", "0"]])
def test_a_command_without_a_file_says_how_to_name_one(line: list[str]) -> None:
    result = CliRunner().invoke(MAIN, line, env={"EOSDB_DB": None})
    assert result.exit_code == 2
    assert "name the database file" in result.stderr
    assert "--db PATH" in result.stderr
