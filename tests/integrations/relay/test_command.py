"""`eosdb relay` in processes of its own: killed at any time, told to stop, and what it shows of secrets."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka  # noqa: F401  So that the file is skipped where it is missing.
import pytest
from click.testing import CliRunner

import eosdb
from eosdb.testing.kafka import KafkaDouble
from tests.cli.conftest import MAIN
from tests.integrations.relay.contents import PATIENCE_S, contents, fill, values
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

Start = Callable[..., subprocess.Popen[str]]
SECRET = "hunter2-is-not-shown"


@pytest.fixture
def start(source: eosdb.Database) -> Iterator[Start]:
    """Starts `eosdb relay` on the source; none outlives its test."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "eosdb.cli", "relay", source.path, *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def run(*arguments: str) -> tuple[int, str]:
    """The command in this process: its status, and what it says."""
    result = CliRunner().invoke(MAIN, ["relay", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


def test_killed_at_any_time_it_sends_everything_once(
    source: eosdb.Database, cluster: KafkaDouble, start: Start
) -> None:
    chance = random.Random(1)
    fill(source, range(3_000))
    for number in range(3):
        process = start("--to", cluster, "--transaction-size", "20")
        least = cluster.counts["request"] + chance.randrange(25, 200)
        eventually(lambda at=least: cluster.counts["request"] > at)  # type: ignore[misc]
        process.kill()
        process.wait()
        fill(source, range(3_000 + 10 * number, 3_010 + 10 * number))
    code, said = ended(start("--to", cluster, "--once"))
    assert code == 0, said
    assert contents(cluster.db) == contents(source)


def test_told_to_stop_it_ends_well_and_a_file_gets_everything(
    source: eosdb.Database, tmp_path: Path, start: Start
) -> None:
    fill(source, range(10))
    process = start("--to", str(tmp_path / "copy.db"), "--create", "--topic", "orders")
    with eosdb.connect(tmp_path / "copy.db", durability="off") as copy:
        eventually(lambda: "orders" in copy.broker.topics() and len(values(copy)) == 10)
        process.terminate()
        assert ended(process) == (0, "10 records relayed in 1 transactions\n")
        assert contents(copy) == contents(source)


def test_a_file_that_is_not_there_is_not_created_unasked(
    source: eosdb.Database, tmp_path: Path
) -> None:
    code, said = run(source.path, "--to", str(tmp_path / "copy.db"), "--once")
    assert (code, "DatabaseNotFoundError" in said) == (1, True)


def test_figures_can_be_fetched_while_it_runs(
    source: eosdb.Database, cluster: KafkaDouble, start: Start
) -> None:
    fill(source, range(10))
    process = start("--to", cluster, "--metrics-port", "0")
    assert process.stderr is not None
    found = re.search(r"http://127.0.0.1:\d+/metrics", process.stderr.readline())
    assert found is not None

    def figures() -> str:
        with urllib.request.urlopen(found[0]) as answer:
            return str(answer.read().decode())

    eventually(lambda: 'eosdb_relay_records_total{relay="relay"} 10\n' in figures())
    lag = 'eosdb_relay_lag_records{relay="relay",topic="orders",partition="0"} 0\n'
    eventually(lambda: lag in figures())


@pytest.fixture
def guarded(target: eosdb.Database) -> Iterator[str]:
    """The address of a server that lets in who has a password."""
    target.admin.set_password("relay", SECRET)
    with target.serve(require_sasl=True) as server:
        yield server.bootstrap_servers


def settings(path: Path, *more: str) -> str:
    lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256"]
    path.write_text("\n".join([*lines, "sasl.username=relay", *more]))
    return str(path)


def test_passwords_come_from_a_file_or_the_environment_and_are_kept_nowhere(
    source: eosdb.Database,
    target: eosdb.Database,
    guarded: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = (0, "10 records relayed in 1 transactions\n")
    fill(source, range(10))
    whole = settings(tmp_path / "c", f"sasl.password={SECRET}")
    assert run(source.path, "--to", guarded, "--once", "--command-config", whole) == done
    fill(source, range(10, 20))
    monkeypatch.setenv("EOSDB_KAFKA_SASL_PASSWORD", SECRET)
    rest = settings(tmp_path / "d")
    assert run(source.path, "--to", guarded, "--once", "--command-config", rest) == done
    assert contents(target) == contents(source)
    for file in tmp_path.iterdir():
        assert file.name == "c" or SECRET.encode() not in file.read_bytes()


def test_a_wrong_password_stops_it_and_is_not_shown(
    source: eosdb.Database, guarded: str, tmp_path: Path
) -> None:
    wrong = settings(tmp_path / "c", "sasl.password=another-secret")
    code, said = run(source.path, "--to", guarded, "--once", "--command-config", wrong)
    assert (code, "SASL_AUTHENTICATION_FAILED" in said) == (1, True), said
    assert "another-secret" not in said


@pytest.mark.parametrize("line", ["acks=0", "security.protocol=hunter2", "no.such.setting=hunter2"])
def test_settings_that_cannot_be_are_refused_without_their_values(
    line: str, source: eosdb.Database, tmp_path: Path
) -> None:
    (tmp_path / "c").write_text(line)
    code, said = run(source.path, "--to", "a:1", "--once", "--command-config", str(tmp_path / "c"))
    assert (code, line.partition("=")[0] in said) == (1, True), said
    assert "no.such" not in line or "hunter2" not in said


def test_one_other_side_is_named(source: eosdb.Database) -> None:
    assert run(source.path)[0] == 2
    assert run(source.path, "--to", "a:1", "--from", "b:1")[0] == 2
    code, said = run(source.path, "--from", "other.db")
    assert (code, "expected HOST:PORT" in said) == (2, True)
