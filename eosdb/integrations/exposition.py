"""The metrics of a database for Prometheus, and a small HTTP server of its text format."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import attrgetter
from typing import Any, Final, Self

from eosdb.errors import EosdbError, StorageError
from eosdb.model.closing import Closeable
from eosdb.model.overview import GroupFigures, Overview, PartitionFigures
from eosdb.model.reports import CommitTimes
from eosdb.model.threads import Thread
from eosdb.wire.listening import not_listening

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its samples. The name of a counter ends in `_total`; that of a histogram omits
    `_bucket`."""

    name: str
    kind: str
    text: str
    samples: Sequence[tuple[str, Labels, float]]
    """The samples, each with a name suffix, labels, and a value."""


def metric(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """Build a counter if the name says so, otherwise a gauge."""
    kind = "counter" if name.endswith("_total") else "gauge"
    return Metric(name, kind, text, [("", labels, value) for labels, value in samples])


def histogram(
    name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Metric:
    """Build a histogram. `counts` has a number for each bound, and a last one for values beyond all
    bounds."""
    samples: list[tuple[str, Labels, float]] = []
    so_far = 0
    for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
        so_far += count
        samples.append(("_bucket", {"le": bound}, so_far))
    return Metric(name, "histogram", text, [*samples, ("_sum", {}, total), ("_count", {}, so_far)])


def written(metrics: Iterable[Metric]) -> str:
    """Render the metrics as text, without those that have no samples."""
    return "".join(f"{line}\n" for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.text)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for suffix, labels, value in metric.samples:
        inside = ",".join(f'{name}="{_quoted(str(text))}"' for name, text in labels.items())
        braces = f"{{{inside}}}" if inside else ""
        yield f"{metric.name}{suffix}{braces} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


_OF_PROCESS: Final = {
    "records_in_total": ("Records stored through this process.", "messages-in-total"),
    "record_bytes_in_total": ("Bytes of records stored through this process.", "bytes-in-total"),
    "duplicate_batches_total": ("Batches that were already stored.", "duplicate-batches-total"),
    "commits_total": ("SQLite commits by this process.", "commit-total"),
    "synced_commits_total": ("Commits that were synced to the disk.", "fsync-total"),
}
"""The metrics of a process: the end of the name, the text, and the name in `Database.metrics`."""


def of_process(figures: Mapping[str, float], times: CommitTimes) -> Iterator[Metric]:
    for name, (text, key) in _OF_PROCESS.items():
        yield metric(f"eosdb_{name}", text, [({}, figures.get(key, 0))])
    yield metric(
        "eosdb_requests_total",
        "Requests to the broker in this process.",
        [({"request": name}, value) for name, value in _named(figures, "requests:", "-total")],
    )
    yield metric(
        "eosdb_request_seconds_total",
        "Time spent in requests to the broker in this process.",
        [
            ({"request": name}, ns / 1e9)
            for name, ns in _named(figures, "request-time-ns:", "-total")
        ],
    )
    yield metric(
        "eosdb_errors_total",
        "Requests that were refused, by error.",
        [({"error": name}, value) for name, value in _named(figures, "errors-total:", "")],
    )
    yield histogram(
        "eosdb_commit_seconds",
        "Duration of COMMIT with its fsync, in this process.",
        times.bounds_s,
        times.counts,
        times.total_s,
    )
    yield metric(
        "eosdb_lock_wait_seconds_total",
        "Time that writers of this process have waited for other writers of the file.",
        [({}, times.lock_wait_s)],
    )


def _named(figures: Mapping[str, float], prefix: str, suffix: str) -> Iterable[tuple[str, float]]:
    return (
        (name.removeprefix(prefix).removesuffix(suffix), value)
        for name, value in sorted(figures.items())
        if name.startswith(prefix)
    )


_OF_FILE: Final = {
    "file_bytes": ("Size of the database file.", "size_bytes"),
    "wal_bytes": ("Size of the WAL.", "wal_bytes"),
    "free_bytes": ("Bytes of the free pages in the file.", "free_bytes"),
    "events_total": ("Events in the history of the file.", "journal_position"),
}
"""The metrics of a file: the end of the name, the text, and the attribute of Overview."""


def of_file(overview: Overview) -> Iterator[Metric]:
    for name, (text, attribute) in _OF_FILE.items():
        yield metric(f"eosdb_{name}", text, [({}, getattr(overview, attribute))])
    yield from _of_partitions(overview.partitions)
    yield from _of_groups(overview.groups)
    yield from _of_transactions(overview)
    yield metric(
        "eosdb_dead_letters",
        "Dead letters that have not been sent back, counted in offsets.",
        [({"topic": topic.topic}, topic.waiting) for topic in overview.dead_letters],
    )
    yield metric(
        "eosdb_scheduled_records",
        "Committed records that wait until they are due.",
        [({"topic": one.topic}, one.waiting) for one in overview.scheduled],
    )
    late_ms = {one.topic: max(overview.now_ms - one.first_due_ms, 0) for one in overview.scheduled}
    yield metric(
        "eosdb_scheduled_overdue_seconds",
        "How long the oldest record that is due has waited.",
        [({"topic": topic}, ms / 1000) for topic, ms in late_ms.items()],
    )


_OF_PARTITION: Final = {
    "start_offset": ("Log start offset.", "offsets.log_start_offset"),
    "end_offset": ("Log end offset: that of the next record.", "offsets.log_end_offset"),
    "stable_offset": (
        "Last stable offset: read_committed consumers read below it.",
        "offsets.last_stable_offset",
    ),
    "bytes": ("Bytes of the stored records.", "size_bytes"),
}
"""The metrics of a partition: the end of the name, the text, and the attribute of PartitionFigures."""


def _of_partitions(partitions: Iterable[PartitionFigures]) -> Iterator[Metric]:
    labelled = [({"topic": p.topic, "partition": p.partition}, p) for p in partitions]
    for name, (text, path) in _OF_PARTITION.items():
        of = attrgetter(path)
        yield metric(f"eosdb_partition_{name}", text, [(labels, of(p)) for labels, p in labelled])
    yield metric(
        "eosdb_partition_newest_timestamp_seconds",
        "Highest timestamp of a record, in seconds since 1970.",
        [(labels, p.max_timestamp / 1000) for labels, p in labelled if p.max_timestamp >= 0],
    )


def _of_groups(groups: Iterable[GroupFigures]) -> Iterator[Metric]:
    listed = list(groups)
    yield metric(
        "eosdb_group_members",
        "Members of the consumer group.",
        [({"group": g.group_id, "state": g.state}, g.members) for g in listed],
    )
    placed = [
        ({"group": g.group_id, "topic": p.topic, "partition": p.partition}, p)
        for g in listed
        for p in g.positions
    ]
    yield metric(
        "eosdb_group_committed_offset",
        "Committed offset of the group.",
        [(labels, p.committed_offset) for labels, p in placed if p.committed_offset >= 0],
    )
    yield metric(
        "eosdb_group_lag_offsets",
        "Records that the group could read now. Beyond a partition's newest thousand records it "
        "counts offsets.",
        [(labels, p.behind) for labels, p in placed],
    )


def _of_transactions(overview: Overview) -> Iterator[Metric]:
    oldest: dict[str, int] = {}
    for transaction in overview.transactions:
        name = transaction.transactional_id or ""
        oldest[name] = max(oldest.get(name, 0), overview.now_ms - transaction.start_time_ms)
    yield metric(
        "eosdb_open_transactions",
        "Open transactions, counted once for each of their partitions.",
        [({}, len(overview.transactions))],
    )
    yield metric(
        "eosdb_open_transaction_seconds",
        "How long a transaction has been open.",
        [({"transactional_id": name}, ms / 1000) for name, ms in sorted(oldest.items())],
    )


LOOPBACK: Final = "127.0.0.1"
_PATIENCE_S: Final = 10
"""How long a client may pause within its request, or not read the answer (s)."""


class FigureServer(Closeable):
    """Serves a text at http://HOST:PORT/metrics, from threads of this process. A context manager. When
    `text` raises an EosdbError the answer is 503 with its message."""

    def __init__(self, port: int, text: Callable[[], str], host: str = LOOPBACK) -> None:
        class Answer(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                status, body = 404, "not found; see /metrics\n"
                if self.path.partition("?")[0] in ("/", "/metrics"):
                    try:
                        status, body = 200, text()
                    except EosdbError as error:
                        status, body = 503, f"{error}\n"
                data = body.encode(errors="replace")
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        class Serving(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def process_request(self, request: Any, client_address: Any) -> None:
                answer = self.process_request_thread
                Thread("the figures", "eosdb-figures", answer, request, client_address).start()

        try:
            self._server: Final = Serving((host, port), Answer)
        except OSError as error:
            raise not_listening(host, port, error) from None
        self.port: Final[int] = self._server.server_address[1]
        self._thread: Final = Thread("the figures", "eosdb-figures", self._server.serve_forever)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except StorageError:
            self._server.server_close()
            raise
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
