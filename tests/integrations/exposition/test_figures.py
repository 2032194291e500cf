"""The figures of a database in Prometheus' text form, as its own parser reads them."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import eosdb
from eosdb import ManualClock
from eosdb.errors import ListenError, StorageError
from eosdb.integrations.exposition import FigureServer, histogram, metric, written
from tests.cli.conftest import MAIN

NASTY = 'back\\slash "quoted"\nline'


@pytest.fixture
def busy(db: eosdb.Database, clock: ManualClock) -> eosdb.Database:
    """A group that is behind, and an open transaction that is 2.5 s old."""
    db.admin.create_topic("orders", partitions=2)
    db.admin.create_topic("dead")
    for i in range(10):
        db.producer().send("orders", b"value", partition=i % 2).result()
    consumer = db.consumer("billing", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe("orders")
    consumer.poll(max_records=3)
    consumer.commit()
    producer = db.producer(transactional_id="tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"open", partition=1).result()
    clock.advance(2_500)
    return db


def samples(text: str) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            found.setdefault(sample.name, []).append(sample)
    return found


def test_what_it_says_is_what_the_database_says(busy: eosdb.Database) -> None:
    found = samples(busy.metrics_text())
    seen, figures = busy.admin.overview(), busy.metrics()

    def by(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return {tuple(s.labels[label] for label in labels): s.value for s in found[name]}

    assert by("eosdb_partition_end_offset", "topic", "partition") == {
        (p.topic, str(p.partition)): p.offsets.log_end_offset for p in seen.partitions
    }
    assert by("eosdb_partition_stable_offset", "topic", "partition")["orders", "1"] == 5
    assert by("eosdb_group_lag_offsets", "group", "topic", "partition") == {
        ("billing", p.topic, str(p.partition)): p.behind for p in seen.groups[0].positions
    }
    assert by("eosdb_open_transaction_seconds", "transactional_id") == {("tx",): 2.5}
    assert by("eosdb_records_in_total") == {(): 11}
    assert by("eosdb_requests_total", "request")["produce",] == figures["requests:produce-total"]
    assert by("eosdb_commits_total") == {(): figures["commit-total"]}
    assert by("eosdb_wal_bytes") == {(): seen.wal_bytes}


def test_scheduled_records_have_their_number_and_how_late_they_are(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("late")
    db.admin.create_topic("later")
    for topic, seconds in (("late", 1), ("late", 60), ("later", 60)):
        db.producer().send(topic, deliver_at=clock.time_ms() + 1_000 * seconds).result()
    clock.advance(2_500)
    found = samples(db.metrics_text())
    waiting = [(s.labels["topic"], s.value) for s in found["eosdb_scheduled_records"]]
    late = [(s.labels["topic"], s.value) for s in found["eosdb_scheduled_overdue_seconds"]]
    assert (waiting, late) == ([("late", 2), ("later", 1)], [("late", 1.5), ("later", 0)])


def test_the_histogram_counts_every_commit(busy: eosdb.Database) -> None:
    found = samples(busy.metrics_text())
    buckets = found["eosdb_commit_seconds_bucket"]
    counts = [bucket.value for bucket in buckets]
    assert counts == sorted(counts)
    assert [float(b.labels["le"]) for b in buckets][-1] == math.inf
    (count,), (total,) = found["eosdb_commit_seconds_count"], found["eosdb_commits_total"]
    assert counts[-1] == count.value == total.value


def test_labels_and_numbers_survive_the_format() -> None:
    text = written(
        [
            metric("a", NASTY, [({"topic": NASTY}, 0.25), ({"topic": ""}, -1)]),
            metric("left_out", "without samples", []),
            histogram("h", "of", (0.1, 1.0), (1, 0, 2), 5.5),
        ]
    )
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"a", "h"}
    assert families["a"].documentation == NASTY
    assert [(s.labels, s.value) for s in families["a"].samples] == [
        ({"topic": NASTY}, 0.25),
        ({"topic": ""}, -1.0),
    ]
    assert [s.value for s in families["h"].samples] == [1, 1, 3, 5.5, 3]


def test_a_principal_sees_what_it_may_describe(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("orders")
        db.admin.create_acls([eosdb.Acl("User:root", "describe", "topic", "orders")])
    with eosdb.connect(db_path, principal="User:nobody") as db:
        assert "eosdb_partition" not in db.metrics_text()


def test_the_command_prints_the_figures_of_the_file_alone(busy: eosdb.Database) -> None:
    done = CliRunner().invoke(MAIN, ["metrics", busy.path])
    assert done.exit_code == 0, done.output
    found = samples(done.stdout)
    assert found["eosdb_group_members"][0].labels == {
        "group": "billing",
        "state": "Empty",
    }  # Its session has ended.
    assert "eosdb_commits_total" not in found


@pytest.mark.process
def test_the_command_serves_them_until_it_is_stopped(busy: eosdb.Database) -> None:
    where = ["--listen", "127.0.0.1", "--port", "0"]
    serving = subprocess.Popen(
        [sys.executable, "-m", "eosdb.cli", "metrics", busy.path, *where],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stderr is not None
        url = serving.stderr.readline().removeprefix("figures at ").strip()
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            before = samples(answer.read().decode())["eosdb_partition_end_offset"]
        busy.producer().send("orders", b"v", partition=0).result()
        with urllib.request.urlopen(url, timeout=60) as answer:
            after = samples(answer.read().decode())["eosdb_partition_end_offset"]
        assert sum(s.value for s in after) == sum(s.value for s in before) + 1
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=60)
    assert serving.returncode == 0


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:9404", ""])
def test_an_address_without_a_port_is_refused(busy: eosdb.Database, listen: str) -> None:
    done = CliRunner().invoke(MAIN, ["metrics", busy.path, "--listen", listen])
    assert (done.exit_code, "without --port" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_port_that_is_taken_and_a_file_that_fails_are_told_of() -> None:
    def fail() -> str:
        raise StorageError("the disk is gone")

    with FigureServer(0, fail) as server:
        with pytest.raises(ListenError, match="choose another"):
            FigureServer(server.port, fail)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60)
    with refused.value as answer:
        assert (answer.code, answer.read()) == (503, b"the disk is gone\n")


def test_a_client_that_stops_in_its_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosdb.integrations.exposition._PATIENCE_S", 0.1)
    with (
        FigureServer(0, lambda: "") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as client,
    ):
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        assert client.recv(1) == b""
