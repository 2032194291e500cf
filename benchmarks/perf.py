"""Throughput and latency of a file's producers and consumers, in the words of kafka-producer-perf-test
and kafka-consumer-perf-test: `python -m benchmarks.perf produce shop.db orders --num-records 100000 …`."""

from __future__ import annotations

import contextlib
import random
import string
import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import TypedDict, Unpack

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.commands.data.topics import settings_of
from eosdb.cli.file_command import FileGroup, Session
from eosdb.cli.main import main
from eosdb.cli.output import progress
from eosdb.errors import MessageTooLargeError
from eosdb.model.clock import monotonic_ns

_REPORT_EVERY_MS = 5_000
_SAMPLES_MAX = 500_000
"""Latencies kept for the percentiles; beyond it, only every n-th record is sampled."""
_PERCENTILES = (50, 95, 99, 99.9)
_MB = 1024 * 1024
_POLL_RECORDS = 500


class _Batching(TypedDict):
    batch_size: int
    linger_ms: int


@click.group(cls=FileGroup)
def perf() -> None:
    """Measure the throughput of producing and consuming."""


class Latencies:
    """Latency of each record, from `send` to its acknowledgement. Thread-safe."""

    def __init__(self, clock: eosdb.Clock, records: int, record_size: int) -> None:
        self._clock = clock
        self._record_size = record_size
        self._every = -(-records // _SAMPLES_MAX)
        self._lock = threading.Lock()
        self._samples: list[int] = []
        self._start_ns = self._window_ns = monotonic_ns(clock)
        self._all = [0, 0, 0]
        self._window = [0, 0, 0]
        """Count, sum and maximum of the latencies, in all and since the last report."""
        self._end_ns = self._start_ns
        self._error: eosdb.EosdbError | None = None
        """The error of the first failed delivery."""

    def check(self) -> None:
        """Raises the error of a failed delivery."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop the clock after the last delivery. Raises the error of a failed one."""
        self.check()
        self._end_ns = monotonic_ns(self._clock)

    def delivered(
        self,
        sent_ns: int,
        error: eosdb.EosdbError | None,
        _: eosdb.RecordMetadata | None,
    ) -> None:
        """The delivery callback of each record."""
        took = monotonic_ns(self._clock) - sent_ns
        with self._lock:
            if error is not None:
                self._error = self._error or error
                return
            if self._all[0] % self._every == 0:
                self._samples.append(took)
            for numbers in (self._all, self._window):
                numbers[0] += 1
                numbers[1] += took
                numbers[2] = max(numbers[2], took)

    def report_when_due(self) -> None:
        """Print the figures of the last five seconds, when those are over."""
        now_ns = monotonic_ns(self._clock)
        if now_ns - self._window_ns < _REPORT_EVERY_MS * 1_000_000:
            return
        with self._lock:
            window, self._window = self._window, [0, 0, 0]
            text = self._summary(window, now_ns - self._window_ns)
            self._window_ns = now_ns
        output.line(f"{text}.", err=True)

    def figures(self) -> dict[str, object]:
        """Throughput and latencies of the whole run, by name."""
        count, total_ns, longest_ns = self._all
        elapsed_s = _seconds(self._end_ns - self._start_ns)
        ordered = sorted(self._samples)
        return {
            "records": count,
            "records.sec": round(count / elapsed_s, 2),
            "MB.sec": round(count * self._record_size / _MB / elapsed_s, 4),
            "avg.latency.ms": _ms(total_ns // max(count, 1)),
            "max.latency.ms": _ms(longest_ns),
            **{f"latency.{p}th.ms": _ms(_percentile(ordered, p)) for p in _PERCENTILES},
        }

    def sentence(self) -> str:
        """The last line of kafka-producer-perf-test, with fractions of milliseconds."""
        ordered = sorted(self._samples)
        percentiles = ", ".join(
            f"{_ms(_percentile(ordered, p)):.2f} ms {p}th" for p in _PERCENTILES
        )
        return f"{self._summary(self._all, self._end_ns - self._start_ns)}, {percentiles}."

    def _summary(self, numbers: list[int], elapsed_ns: int) -> str:
        count, total_ns, longest_ns = numbers
        rate = count / _seconds(elapsed_ns)
        return (
            f"{count} records sent, {rate:.1f} records/sec "
            f"({rate * self._record_size / _MB:.2f} MB/sec), "
            f"{_ms(total_ns // max(count, 1)):.2f} ms avg latency, {_ms(longest_ns):.2f} ms max latency"
        )


def _size(record: eosdb.ConsumerRecord) -> int:
    return sum(len(part) for part in (record.key, record.value) if isinstance(part, bytes))


def _seconds(ns: int) -> float:
    """Convert to seconds, at least 1 µs, so that the result can be a divisor."""
    return max(ns, 1_000) / 1e9


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _percentile(ordered: list[int], percent: float) -> int:
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0


def _throughput(_: click.Context, __: click.Parameter, value: float) -> float:
    if value != -1 and not 0.001 <= value < float("inf"):
        raise click.BadParameter(
            f"got {value:g}, expected records per second, 0.001 or more, or -1 for no limit"
        )
    return value


@perf.command()
@click.argument("topic")
@click.option(
    "--num-records", type=click.IntRange(min=1), required=True, help="Number of records to send."
)
@click.option(
    "--record-size", type=click.IntRange(min=1, max=2**31 - 1), required=True,
    help="Size of each record value in bytes.",
)  # fmt: skip
@click.option(
    "--throughput", type=float, callback=_throughput, default=-1, show_default=True,
    help="Maximum records per second; -1 for no limit.",
)  # fmt: skip
@click.option(
    "--transaction-size", type=click.IntRange(min=1),
    help="Send in transactions of this many records.",
)  # fmt: skip
@click.option("--transactional-id", help="Transactional id to use (default: eosdb-perf).")
@click.option(
    "--batch-size", type=click.IntRange(min=0, max=2**31 - 1), default=16_384, show_default=True,
    help="Batch size in bytes.",
)  # fmt: skip
@click.option(
    "--linger-ms", type=click.IntRange(min=0, max=60_000), default=0, show_default=True,
    help="Wait this long for a batch to fill.",
)  # fmt: skip
@output.format_option
def produce(
    session: Session,
    /,
    topic: str,
    num_records: int,
    record_size: int,
    throughput: float,
    transaction_size: int | None,
    transactional_id: str | None,
    **batching: Unpack[_Batching],
) -> None:
    """Produce random records to TOPIC and measure throughput, and latency from send to acknowledgement.

    The records stay in the topic. In a transaction, records are sent when a batch is full, or at the end.

    \b
    Example:
      python -m benchmarks.perf produce shop.db orders --num-records 100000 --record-size 100
    """
    if transactional_id is not None and transaction_size is None:
        raise click.UsageError("--transactional-id needs --transaction-size")
    if transaction_size is not None:
        transactional_id = transactional_id or "eosdb-perf"
    with session.open() as db:
        settings = settings_of(db, topic)
        if record_size > settings.max_message_bytes:
            raise MessageTooLargeError(
                f"--record-size: got {record_size}, max.message.bytes of the topic is "
                f"{settings.max_message_bytes}"
            )
        value = _letters(record_size)
        with db.producer(
            transactional_id=transactional_id,
            max_request_size=settings.max_message_bytes,
            **batching,
        ) as producer:
            if transactional_id is not None:
                producer.init_transactions()
            latencies = Latencies(db.clock, num_records, record_size)
            numbers = _paced(num_records, throughput, db.clock)
            for first in numbers:
                with producer.transaction() if transaction_size else contextlib.nullcontext():
                    for _ in chain((first,), islice(numbers, (transaction_size or 1) - 1)):
                        sent = partial(latencies.delivered, monotonic_ns(db.clock))
                        producer.send(topic, value, on_delivery=sent)
                        latencies.check()
                        latencies.report_when_due()
            producer.flush()
            latencies.end()
    if output.is_format("table"):
        output.line(latencies.sentence())
    else:
        output.facts(latencies.figures())


def _letters(size: int) -> bytes:
    """Random letters; the same in every run."""
    some = "".join(random.Random(0).choices(string.ascii_uppercase, k=1_000)).encode()
    return (some * -(-size // len(some)))[:size]


def _paced(count: int, throughput: float, clock: eosdb.Clock) -> Iterator[int]:
    """Yield 0 to `count` - 1 at the target rate, sleeping until each number is due."""
    start_ns = monotonic_ns(clock)
    for number in range(count):
        if throughput != -1:
            ahead_ms = (number / throughput) * 1000 - (monotonic_ns(clock) - start_ns) / 1e6
            if ahead_ms >= 1:
                clock.sleep_ms(int(ahead_ms))
        yield number


@perf.command()
@click.argument("topic")
@click.option(
    "--num-records", type=click.IntRange(min=1), required=True, help="Number of records to read."
)
@click.option("--group", help="Consume as a member of this group, and commit its offsets.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0, max=2**31 - 1), default=10_000, show_default=True,
    help="Stop when no record arrives for this long.",
)  # fmt: skip
@output.format_option
def consume(
    session: Session,
    topic: str,
    num_records: int,
    group: str | None,
    timeout_ms: int,
) -> None:
    """Consume TOPIC from the beginning, or from a group's committed offsets, and measure throughput.

    \b
    Example:
      python -m benchmarks.perf consume shop.db orders --num-records 100000
    """
    with (
        session.open(read_only=group is None) as db,
        db.consumer(group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        clock = db.clock
        start_ms, start_ns = clock.time_ms(), monotonic_ns(clock)
        joined_ns = start_ns

        def joined(_: object) -> None:
            nonlocal joined_ns
            joined_ns = monotonic_ns(clock)

        consumer.subscribe(topic, on_assign=joined)
        count = size = 0
        end_ns = joined_ns
        with progress("perf consume", "records") as report:
            while count < num_records:
                batch = consumer.poll(timeout_ms, min(num_records - count, _POLL_RECORDS))
                if not batch:
                    break
                end_ns = monotonic_ns(clock)
                count += len(batch)
                size += sum(map(_size, batch))
                report(count, num_records)
        if group is not None:
            consumer.commit()
    if count < num_records:
        output.line(
            f"only {count} of {num_records} records arrived within --timeout-ms {timeout_ms}",
            err=True,
        )
    elapsed_s, fetch_s = _seconds(end_ns - start_ns), _seconds(max(end_ns - joined_ns, 0))
    figures = {
        "start.time": start_ms,
        "end.time": start_ms + (end_ns - start_ns) // 1_000_000,
        "data.consumed.in.MB": round(size / _MB, 4),
        "MB.sec": round(size / _MB / elapsed_s, 4),
        "data.consumed.in.nMsg": count,
        "nMsg.sec": round(count / elapsed_s, 4),
        "rebalance.time.ms": (joined_ns - start_ns) // 1_000_000,
        "fetch.time.ms": max(end_ns - joined_ns, 0) // 1_000_000,
        "fetch.MB.sec": round(size / _MB / fetch_s, 4),
        "fetch.nMsg.sec": round(count / fetch_s, 4),
    }
    output.rows(tuple(figures), [tuple(figures.values())])


if __name__ == "__main__":
    main.add_command(perf)
    main(["perf", *sys.argv[1:]])
