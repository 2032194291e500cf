"""Options and fixtures of the whole suite: real files, and a clock that stands still."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

import eosdb
from eosdb import BrokerConfig, ProduceResult, Record, RecordBatch, TopicPartition
from tests import durations, extras, hanging, marks, seeds, zygote
from tests.native.roads import road
from tests.requests import TP, Send

START_MS = 1_700_000_000_000
FEW_LINES = 25
_FOLDERS = itertools.count()

# Machines are slow and crowded at times: how long an example takes says nothing.
settings.register_profile("eosdb", deadline=None, max_examples=40)
settings.register_profile("many", deadline=None, max_examples=1_000)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    for plugin in (extras, marks, durations, hanging, seeds):
        pluginmanager.register(plugin)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if config.option.seeds > 1 else "eosdb")
    # Hundreds of processes import eosdb: containers set this, and each would compile it anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    _hear_signals()
    subprocess.Popen = zygote.Popen  # type: ignore[misc]


def pytest_unconfigure() -> None:
    zygote.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    zygote.enabled = item.get_closest_marker("real_start") is None
    forked_with = item.get_closest_marker("forked_with")
    zygote.imported = forked_with.args if forked_with else ()


def _hear_signals() -> None:
    """`nohup`, and a shell for what it runs in the background, have signals ignored, and children inherit
    that. With a handler of Python's they have the default; a hangup still does not end the suite."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else _do_nothing)


def _do_nothing(*_: object) -> None: ...


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the mark `both_roads` runs with the accelerator, and again without."""
    if metafunc.definition.get_closest_marker("both_roads"):
        roads = (pytest.param(None, id=pytest.HIDDEN_PARAM), pytest.param("0", id="python"))
        metafunc.parametrize("_road", roads, indirect=True)


@pytest.fixture(autouse=True)
def _road(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before the test's other fixtures, so that it opens its files by this road."""
    setting: str | None = getattr(request, "param", None)
    with road(setting) if setting else nullcontext():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker of xdist begins with a piece of this list; idle ones take from the end of the others'. So
    all of Spark is with the first, and a module is seldom divided."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Show the end of the first failure below all else, where nobody has to scroll for it. In CI, pytest's
    own summary has each message whole."""
    yield
    bad = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if bad:
        terminalreporter.section(f"the first of {len(bad)} failures: {bad[0].nodeid}")
        terminalreporter.write_line("\n".join(bad[0].longreprtext.splitlines()[-FEW_LINES:]))
        terminalreporter.write_line(hanging.stacks(terminalreporter.config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Each worker collects all tests and their modules, and nearly all that this makes stays: going through
    it again and again is a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # Each `gc.collect()` would go through it, too.
        gc.enable()


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """As pytest's, which looks through the folders of all earlier tests for a new name. After a test that
    passed, its files go before the system writes them to the disk."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{name}-{next(_FOLDERS)}"
    path.mkdir(mode=0o700)
    failed_before = request.session.testsfailed
    yield path
    if request.session.testsfailed == failed_before:
        shutil.rmtree(path, ignore_errors=True)


class _NotOfClients(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] not in ("aiokafka", "kafka")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without what a client says that another test may have left."""
    with caplog.filtering(_NotOfClients()):
        yield caplog


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.fixture
def clock() -> eosdb.ManualClock:
    return eosdb.ManualClock(start_ms=START_MS)


@pytest.fixture
def db(db_path: Path, clock: eosdb.ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="off") as opened:
        yield opened


@pytest.fixture
def classic_db(db_path: Path, clock: eosdb.ManualClock) -> Iterator[eosdb.Database]:
    """Transaction version 1, in which partitions join by a request of their own, and an epoch outlives its
    transaction; with the topic "t"."""
    config = BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, clock=clock, durability="off", config=config) as opened:
        opened.admin.create_topic("t")
        yield opened


@pytest.fixture
def send(classic_db: eosdb.Database) -> Send:
    """send(b"a", b"b", who=(pid, epoch), sequence=0, transactional_id=None, to=TP), to classic_db."""

    def call(
        *values: bytes | None,
        who: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        transactional_id: str | None = None,
        to: TopicPartition = TP,
        key: bytes | None = None,
        timestamp: int | None = None,
    ) -> ProduceResult:
        records = [Record(key=key, value=value, timestamp=timestamp) for value in values]
        batch = RecordBatch(records, *who, sequence, transactional_id is not None)
        return classic_db.broker.append(to, batch, transactional_id=transactional_id)

    return call
