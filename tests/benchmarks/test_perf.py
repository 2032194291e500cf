"""`python -m benchmarks.perf`: the figures add up, in Kafka's words or as rows; what was sent is stored."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from benchmarks.perf import Latencies, _paced, perf
from eosdb import ManualClock
from tests.cli.conftest import MAIN, run

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
__all__ = ["run"]
SENTENCE = re.compile(
    r"40 records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+\.\d\d ms 50th, \d+\.\d\d ms 95th, \d+\.\d\d ms 99th, "
    r"\d+\.\d\d ms 99\.9th\.\n"
)


@pytest.fixture(autouse=True)
def _topic(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAIN.commands, "perf", perf)
    run("init")
    run("topics", "create", "t", "--partitions", "2")


def produce(run: Run, *more: str) -> Result:
    return run("perf", "produce", "t", "--num-records", "40", "--record-size", "10", *more)


@pytest.mark.parametrize("more", [
    (), ("--linger-ms", "5", "--batch-size", "100"), ("--transaction-size", "7"),
    ("--transaction-size", "40", "--transactional-id", "mine"), ("--throughput", "10000"),
], ids=" ".join)  # fmt: skip
def test_all_records_are_sent_and_counted_in_kafkas_words(
    run: Run, db_path: Path, more: tuple[str, ...]
) -> None:
    result = produce(run, *more)
    assert (result.exit_code, result.stderr) == (0, "")
    assert SENTENCE.fullmatch(result.stdout), result.stdout
    with eosdb.connect(db_path, read_only=True) as db:
        values = [value for (value,) in db.query("SELECT value FROM committed_records").rows]
    assert len(values) == 40
    assert {len(value) for value in values} == {10}


def test_transactions_have_the_size_that_was_asked_for(run: Run, db_path: Path) -> None:
    produce(run, "--transaction-size", "15")
    with eosdb.connect(db_path, read_only=True) as db:
        decided = list(
            db.query(
                "SELECT transactional_id FROM journal WHERE kind = 'TransactionStateChanged' "
                "AND detail ->> 'to_state' = 'PrepareCommit'"
            ).rows
        )
    assert decided == [("eosdb-perf",)] * 3


def test_figures_as_rows(run: Run) -> None:
    (row,) = json.loads(produce(run, "--format", "json").stdout)
    assert row["records"] == 40
    assert 0 < row["latency.50th.ms"] <= row["latency.99.9th.ms"] <= row["max.latency.ms"]
    (same,) = csv.DictReader(io.StringIO(produce(run, "--format", "csv").stdout))
    assert list(same) == list(row)


def test_a_line_every_five_seconds_and_all_of_it_at_the_end(
    clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    latencies = Latencies(clock, records=5, record_size=1024 * 1024)
    for took_ms in (1_000, 2_000, 3_000, 500, 500):
        sent_ns = clock.monotonic_ms() * 1_000_000
        clock.advance(took_ms)
        latencies.delivered(sent_ns, None, None)
        latencies.report_when_due()
    latencies.end()
    assert capsys.readouterr().err == (
        "3 records sent, 0.5 records/sec (0.50 MB/sec), 2000.00 ms avg latency, "
        "3000.00 ms max latency.\n"
    )
    assert latencies.sentence() == (
        "5 records sent, 0.7 records/sec (0.71 MB/sec), 1400.00 ms avg latency, 3000.00 ms max latency, "
        "1000.00 ms 50th, 3000.00 ms 95th, 3000.00 ms 99th, 3000.00 ms 99.9th."
    )


def test_of_many_records_some_are_kept_for_the_percentiles(clock: ManualClock) -> None:
    latencies = Latencies(clock, records=1_000_001, record_size=1)
    for _ in range(10):
        latencies.delivered(clock.monotonic_ms() * 1_000_000, None, None)
    assert len(latencies._samples) == 4
    latencies.end()
    assert latencies.figures()["records"] == 10


def test_no_record_leaves_before_its_time(clock: ManualClock) -> None:
    start = clock.monotonic_ms()
    left = [clock.monotonic_ms() - start for _ in _paced(5, 4, clock)]
    assert left == [0, 250, 500, 750, 1_000]
    assert list(_paced(3, -1, clock)) == [0, 1, 2]
    assert clock.monotonic_ms() - start == 1_000


def test_consume_reads_from_the_beginning_without_a_group(run: Run) -> None:
    produce(run)
    for _ in range(2):
        result = run("perf", "consume", "t", "--num-records", "40", "--format", "json")
        assert (result.exit_code, result.stderr) == (0, "")
        (row,) = json.loads(result.stdout)
        assert list(row) == [
            "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg",
            "nMsg.sec", "rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
        ]  # fmt: skip
        assert row["data.consumed.in.nMsg"] == 40
        assert row["data.consumed.in.MB"] == round(400 / 1024 / 1024, 4)


def test_consume_in_a_group_goes_on_where_it_stopped(run: Run) -> None:
    produce(run)
    arguments = ("perf", "consume", "t", "--group", "g", "--timeout-ms", "0", "--format", "csv")
    found = []
    for number in ("30", "30", "30"):
        result = run(*arguments, "--num-records", number)
        (row,) = csv.DictReader(io.StringIO(result.stdout))
        found.append((row["data.consumed.in.nMsg"], result.stderr))
    assert found == [
        ("30", ""),
        ("10", "only 10 of 30 records arrived within --timeout-ms 0\n"),
        ("0", "only 0 of 30 records arrived within --timeout-ms 0\n"),
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("produce", "nope", "--num-records", "1", "--record-size", "1"), 1, "UNKNOWN_TOPIC"),
        (("produce", "t", "--num-records", "1", "--record-size", "2147483647"), 1, "MESSAGE_TOO_LARGE"),
        (("consume", "nope", "--num-records", "1"), 1, "UNKNOWN_TOPIC"),
        (("consume", "t", "--num-records", "1", "--group", ""), 1, "ConfigError"),
        (("produce", "t", "--num-records", "0", "--record-size", "1"), 2, "--num-records"),
        (("produce", "t", "--num-records", "1"), 2, "--record-size"),
        (("consume", "t"), 2, "--num-records"),
        *(
            (("produce", "t", "--num-records", "1", "--record-size", "1", *more), 2, more[0])
            for more in (
                ("--throughput", "0"), ("--throughput", "-2"), ("--throughput", "nan"),
                ("--throughput", "inf"), ("--throughput", "1e-300"),
                ("--transactional-id", "x"), ("--transaction-size", "0"),
            )
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(
    run: Run, arguments: tuple[str, ...], status: int, says: str
) -> None:
    result = run("perf", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert says in result.stderr


def test_a_record_that_cannot_be_stored_is_the_end(run: Run, db_path: Path) -> None:
    run("topics", "create", "keyed", "--config", "cleanup.policy=compact")
    for more in ((), ("--transaction-size", "5"), ("--linger-ms", "5")):
        result = run("perf", "produce", "keyed", "--num-records", "10", "--record-size", "1", *more)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: INVALID_RECORD: ")
