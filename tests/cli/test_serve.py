"""`eosdb serve` as its users start and stop it: one line when it is ready, one when it cannot be."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb.cli.commands.kafka.serve import broker_config, trim_heap
from tests.cli.conftest import Run
from tests.programs import ended
from tests.wire.clients import consume, produce
from tests.wire.peer import Address, Peer

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]


def address(serving: subprocess.Popen[str], path: Path) -> str:
    """Where it says it serves, in the one line it prints."""
    assert serving.stdout is not None
    said, _, where = serving.stdout.readline().rstrip("\n").rpartition(" at ")
    assert said == f"serving {path}", serving.communicate()
    return where


def make(path: Path) -> None:
    with eosdb.connect(path) as db:
        db.admin.create_topic("orders")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_serves_and_ends_in_good_order(
    db_path: Path, start: Start, how: signal.Signals
) -> None:
    make(db_path)
    serving = start("serve", "--port", "0")
    where = address(serving, db_path)
    assert where.startswith("127.0.0.1:")
    produce(where, "orders", [b"a", b"b"])
    assert consume(where, "orders", 2) == [b"a", b"b"]
    serving.send_signal(how)
    out, told = serving.communicate()
    assert (serving.returncode, out) == (0, "")
    is_ctrl_c = how is signal.SIGINT
    assert ("Ctrl-C again aborts it now" in told, len(told.splitlines())) == (
        is_ctrl_c,
        2 * is_ctrl_c,
    )


def test_the_file_may_be_named_behind_the_command_and_created_by_it(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    command = [sys.executable, "-m", "eosdb.cli", "serve", str(path), "--create", "--port", "0"]
    settings = ["--config", "auto.create.topics.enable=true", "--config", "num.partitions=3"]
    environment = {**os.environ, "EOSDB_DB": str(tmp_path / "another.db")}
    serving = subprocess.Popen(
        [*command, *settings], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        produce(address(serving, path), "new", [b"a"])
        # A library process has the file open meanwhile.
        with eosdb.connect(path) as db:
            assert len(db.admin.describe_topic("new").partitions) == 3
            assert [*db.query("SELECT count(*) FROM committed_records").rows] == [(1,)]
    finally:
        serving.terminate()
        serving.communicate()
    assert not (tmp_path / "another.db").exists()


def test_what_keeps_it_from_serving_is_said_in_one_line(db_path: Path, run: Run) -> None:
    refused = run("serve")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"error: DatabaseNotFoundError: {db_path} does not exist; create it with --create, or "
        f"`eosdb init {db_path}`\n"
    )
    make(db_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("serve", "--port", port)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"error: ListenError: cannot listen at 127.0.0.1:{port}: Address already in use; another "
        "program listens there; stop it, or choose another port\n"
    )


def test_users_alone_are_let_in_when_that_is_required(
    db_path: Path, run: Run, start: Start
) -> None:
    make(db_path)
    run("users", "add", "alice", stdin="secret")
    where = address(start("serve", "--port", "0", "--require-sasl"), db_path)
    settings: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice", "sasl.password": "secret",
    }  # fmt: skip
    produce(where, "orders", [b"a"], **settings)
    hurried: dict[str, Any] = {"message.timeout.ms": 1000}
    with pytest.raises(AssertionError):
        produce(where, "orders", [b"b"], **hurried)


def test_a_service_manager_hears_that_it_listens_and_clients_are_sent_on(
    db_path: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(db_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        serving = start("serve", "--port", "0", "--advertised", "kafka.example.org:19092")
        assert manager.recv(100) == b"READY=1"
        host, _, port = address(serving, db_path).rpartition(":")
        with Peer(Address(host, int(port))) as peer:
            (broker,) = peer.ask(MetadataRequest(topics=[]), 9).brokers
            assert (broker.host, broker.port) == ("kafka.example.org", 19092)
        serving.terminate()
        assert manager.recv(100) == b"STOPPING=1"
        assert serving.wait() == 0


def test_other_machines_are_not_let_in_without_tls_and_a_login(db_path: Path, run: Run) -> None:
    make(db_path)
    for options in ([], ["--require-sasl"]):
        refused = run("serve", "--port", "0", "--listen", "0.0.0.0", *options)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "give --tls-cert, --tls-key and --require-sasl" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    refused = run("serve", "--port", "0", "--tls-cert", "/no/such", "--tls-key", "/no/such")
    assert refused.stderr == "error: ConfigError: /no/such: No such file or directory\n"


@pytest.mark.real_start
def test_without_the_extra_it_says_how_to_install_it(db_path: Path) -> None:
    make(db_path)
    without = "import sys; sys.modules['kafka'] = None; from eosdb.cli.main import main; main()"
    done = ended([sys.executable, "-c", without, "serve", str(db_path)])
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "the server needs the extra 'serve': pip install " in done.stderr


def test_settings_are_given_by_the_names_of_kafka() -> None:
    assert broker_config({}) == eosdb.BrokerConfig()
    given = {
        "auto.create.topics.enable": "true",
        "group.min.session.timeout.ms": "10",
        "super_users": "User:admin",
    }
    assert broker_config(given) == eosdb.BrokerConfig(
        auto_create_topics_enable=True, group_min_session_timeout_ms=10, super_users="User:admin"
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("what=1", "unknown broker setting 'what'"),
        ("num.partitions=many", "num_partitions: got 'many', expected a whole number"),
        ("auto.create.topics.enable=1", "auto_create_topics_enable: got '1', expected True"),
    ],
)
def test_a_setting_that_is_no_good_is_named(
    db_path: Path, run: Run, given: str, named: str
) -> None:
    make(db_path)
    refused = run("serve", "--config", given)
    assert refused.exit_code == 1
    assert named in refused.stderr


MEMORY = [sys.executable, "-m", "eosdb.cli", "serve", "--memory", "--print-address"]


def test_a_cluster_in_memory_prints_its_address_alone(tmp_path: Path) -> None:
    serving = subprocess.Popen(MEMORY, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    where = serving.stdout.readline().rstrip("\n")
    produce(where, "orders", [b"a"])
    assert consume(where, "orders", 1) == [b"a"]
    serving.send_signal(signal.SIGTERM)
    assert (serving.communicate()[0], serving.returncode) == ("", 0)
    assert not [*tmp_path.iterdir()]


def test_a_cluster_in_memory_ends_with_its_parent() -> None:
    """Its output ends, though nobody sends it a signal."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *MEMORY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline().startswith("127.0.0.1:")
    parent.kill()
    assert parent.communicate()[0] == ""


def test_a_cluster_in_memory_has_no_file(run: Run, db_path: Path) -> None:
    refused = run("serve", str(db_path), "--memory")
    assert refused.exit_code == 2
    assert "FILE or --memory" in refused.stderr


def test_what_a_burst_of_requests_took_goes_back_to_the_system() -> None:
    requests = [bytes(2_000) for _ in range(50_000)]
    many = resident_kib()
    requests = requests[::1_000]  # Those that stay lie between those that go.
    trim_heap()
    assert resident_kib() < many - 50_000


def resident_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(size)
