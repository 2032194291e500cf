"""How a notice is said: with fields, once nobody waits, whatever handlers do."""

from __future__ import annotations

import ast
import logging
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, TopicPartition
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice, error_text, one_line
from scripts.make_notices import PAGE, with_notices
from tests.tidy.tree import modules

SLOW = BrokerConfig(slow_commit_ms=0)
OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class Acting(logging.Handler):
    """Calls a function with every record."""

    def __init__(self, act: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        self._act(record)


class ActingAtOnce(Acting):
    """One call need not wait for another: logging's handlers have a lock of their own."""

    def createLock(self) -> None:
        self.lock = None


@pytest.fixture
def listen() -> Iterator[list[logging.Handler]]:
    """Handlers put into the list hear the logger `eosdb`."""
    logger, handlers = logging.getLogger("eosdb"), Handlers()
    yield handlers
    for handler in handlers:
        logger.removeHandler(handler)


class Handlers(list[logging.Handler]):
    def append(self, handler: logging.Handler) -> None:
        super().append(handler)
        logging.getLogger("eosdb").addHandler(handler)


def test_no_field_takes_the_place_of_one_of_a_log_record() -> None:
    names = {name for notice in catalog.CATALOG for name in (*notice.fields, "action")}
    assert not names & OWN


def test_notices_with_one_action_differ_in_their_sentence_alone() -> None:
    sharing = {(n.action, n.room, n.level, n.fields) for n in catalog.CATALOG}
    assert len(sharing) == len({n.action for n in catalog.CATALOG}) > 35
    assert len({(n.action, n.sentence) for n in catalog.CATALOG}) == len(catalog.CATALOG)


def test_every_sentence_is_a_format_of_named_values() -> None:
    for notice in catalog.CATALOG:
        assert "%" not in notice.sentence % defaultdict(int), notice.action


NAMED = {name: value for name, value in vars(catalog).items() if isinstance(value, Notice)}
ADDED = {
    "_tell": {"group_id", "relay"},
    "_log": {"topic", "partition", "offset", "group_id", "attempt", "error", "cause"},
}
"""What the helper of this name adds for all its notices."""


@pytest.mark.slow
def test_every_call_gives_its_notice_the_fields_and_the_values_of_the_sentence() -> None:
    said = set()
    for path in modules().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            names = _notices_of(call, tree)
            given = {k.arg for k in call.keywords} - {"trace", None}
            rest: set[str] = set()
            for notice in map(NAMED.__getitem__, names):
                wanted = {*notice.fields, *re.findall(r"%\((\w+)\)", notice.sentence)}
                wanted -= {"error_text", "error_message"} if "error" in notice.fields else set()
                rest |= wanted
                missing = wanted - given - ADDED.get(getattr(call.func, "attr", ""), set())
                has_more = any(k.arg is None for k in call.keywords)
                assert has_more or not missing, (notice.action, missing)
            assert given <= rest or not names, (names, given - rest)
            said |= names
    assert said == set(NAMED)


def _notices_of(call: ast.Call, tree: ast.Module) -> set[str]:
    """The names in `catalog.NAME.say(…)`, in `….add(catalog.NAME, …)`, and of a variable that is one of
    two."""
    if not isinstance(call.func, ast.Attribute):
        return set()
    if call.func.attr == "say" and isinstance(call.func.value, ast.Name):
        variable = call.func.value.id
        values = [
            a.value for a in ast.walk(tree) if isinstance(a, ast.Assign) and _names(a, variable)
        ]
        return {name for value in values for name in _of_catalog(value)}
    if call.func.attr == "say":
        return _of_catalog(call.func.value)
    if call.func.attr in ("add", *ADDED):
        return {name for argument in call.args for name in _of_catalog(argument)}
    return set()


def _names(assignment: ast.Assign, name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in assignment.targets)


def _of_catalog(value: ast.AST) -> set[str]:
    attributes = (n for n in ast.walk(value) if isinstance(n, ast.Attribute))
    return {n.attr for n in attributes if getattr(n.value, "id", "") == "catalog"}


def test_a_handler_that_raises_breaks_no_commit(
    db_path: Path, listen: list[logging.Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: logging.LogRecord) -> None:
        raise RuntimeError("this handler is broken")

    listen.append(Acting(fail))
    with eosdb.connect(db_path, config=SLOW) as db:
        db.admin.create_topic("orders")
        assert db.producer().send("orders", b"v").result().offset == 0
        with db.begin() as tx:
            tx.publish("orders", b"w")
        assert db.admin.partition_offsets() != {}
    assert "this handler is broken" in capsys.readouterr().err


def test_a_handler_that_blocks_keeps_nobody_from_writing(
    db_path: Path, listen: list[logging.Handler]
) -> None:
    """Not in this process, and not the file."""
    with eosdb.connect(db_path, config=SLOW) as db, eosdb.connect(db_path) as other:
        db.admin.create_topic("orders")
        blocked, go_on = threading.Event(), threading.Event()
        victim: list[int] = []

        def block(_: logging.LogRecord) -> None:
            if threading.get_ident() in victim:
                blocked.set()
                assert go_on.wait(60)

        listen.append(ActingAtOnce(block))

        def write() -> None:
            victim.append(threading.get_ident())
            db.producer().send("orders", b"blocked").result()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert blocked.wait(60)
            assert db.producer().send("orders", b"v").result().offset == 1
            assert other.producer().send("orders", b"v").result().offset == 2
            with other.begin() as tx:
                tx.publish("orders", b"w")
        finally:
            go_on.set()
            thread.join()


def test_a_handler_that_writes_to_the_file_hears_of_its_own_commits_no_more(
    db_path: Path, listen: list[logging.Handler]
) -> None:
    with eosdb.connect(db_path, config=SLOW) as db:
        db.admin.create_topic("log")
        producer, heard = db.producer(), list[str]()

        def store(record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            producer.send("log", record.getMessage()).result()

        listen.append(Acting(store))
        producer.send("log", b"v").result()
    assert len(heard) >= 1


@pytest.mark.slow
def test_a_slow_commit_says_what_took_it(db_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Here: another program that has the lock."""
    with (
        eosdb.connect(db_path, config=BrokerConfig(slow_commit_ms=200)) as db,
        eosdb.connect(db_path, config=BrokerConfig(slow_commit_ms=-1)) as other,
    ):
        db.admin.create_topic("orders")
        caplog.clear()
        with other.begin() as tx:
            tx.publish("orders", b"first")
            thread = threading.Thread(target=lambda: db.producer().send("orders", b"v").result())
            thread.start()
            thread.join(0.5)
            assert thread.is_alive()
        thread.join()
        (record,) = [r for r in caplog.records if r.__dict__["action"] == "slow_commit"]
    fields = record.__dict__
    assert record.levelno == logging.WARNING
    assert record.name == "eosdb.store"
    assert fields["lock_ms"] >= 200 > fields["requests"]
    parts = ("lock_ms", "work_ms", "commit_ms", "checkpoint_ms")
    assert (
        fields["took_ms"] >= sum(fields[part] for part in parts) >= fields["took_ms"] - len(parts)
    )
    assert f"{fields['lock_ms']} ms waiting for other writers" in record.getMessage()


def test_at_the_usual_levels_a_write_says_nothing(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.admin.create_topic("orders")
    with caplog.at_level(logging.INFO, "eosdb"):
        producer = db.producer(transactional_id="tx")
        producer.init_transactions()
        for _ in range(20):
            with producer.transaction():
                producer.send("orders", b"v")
        with db.begin() as tx:
            tx.publish("orders", b"v")
        consumer = db.consumer(auto_offset_reset="earliest")
        consumer.assign([TopicPartition("orders", 0)])
        assert len(consumer.poll()) == 21
    assert caplog.messages == []


def test_what_others_wrote_is_one_line() -> None:
    assert one_line("one\ntwo\x1b[31m") == r"one\ntwo\x1b[31m"
    assert len(one_line("a" * 1_000)) == 200
    assert error_text(ValueError()) == "ValueError"
    assert error_text(ValueError("no\nway")) == r"ValueError: no\nway"


def test_the_page_has_the_notices_of_the_catalog() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_notices(text) == text, "python -m scripts.make_notices writes it"


def test_a_long_text_keeps_its_end_where_the_reason_stands() -> None:
    text = one_line("/folder" * 50 + ": no such file\n")
    assert len(text.removesuffix("\\n")) <= 200
    assert ": no such file" in text
