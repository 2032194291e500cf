"""`connect` opens a file; `Database` gives access to its clients, its administration and SQL."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Never, TypeAlias, Unpack, get_args

from eosdb.admin import outcome
from eosdb.admin.admin import Admin
from eosdb.admin.overview import write_holder
from eosdb.admin.worries import Worry, worries
from eosdb.broker import outbox, sink
from eosdb.broker.broker import Broker
from eosdb.broker.core import Core, face
from eosdb.broker.outbox import UserTransaction
from eosdb.broker.produce import RATES
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.consumer.settings import ConsumerConfig, ConsumerSettings
from eosdb.client.processor.config import ProcessConfig, ProcessorConfig, ProcessorSettings
from eosdb.client.processor.dead_letters import DeadLetters
from eosdb.client.processor.handlers import Handler, Results, check_may_begin
from eosdb.client.processor.processor import Processor
from eosdb.client.processor.unit_transaction import ProcessorFile
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.settings import ProducerConfig, ProducerSettings
from eosdb.client.transport import DirectTransport, LocalBroker, Transport
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.coordinator.projection import apply
from eosdb.errors import ConfigError, EosdbError, IllegalStateError
from eosdb.maintenance import compact, copies, extract, housekeeping, restore, verify
from eosdb.model import validation
from eosdb.model.answers import Parameters, QueryResult
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.closing import Closeable, Closing
from eosdb.model.config import BrokerConfig, check_by_name, check_switch, keywords_of
from eosdb.model.metrics import Metrics
from eosdb.model.overview import Overview
from eosdb.model.progress import Progress, report_progress
from eosdb.model.reports import ProcessReport, PublishReport, ViewDescription
from eosdb.model.values import (
    ConsumerRecord,
    Durability,
    IsolationLevel,
    Key,
    MadeKey,
    MadeValue,
    TopicPartition,
    Value,
)
from eosdb.model.words import needs_extra
from eosdb.store import queries
from eosdb.store.file import forking
from eosdb.store.file.connection import is_in_wal_mode
from eosdb.store.file.file_system import folder_in_memory
from eosdb.store.schema.migrate import Opened, open_file
from eosdb.store.store import Store

if TYPE_CHECKING:
    import pyarrow
    from sqlalchemy import Engine

    from eosdb.wire.limits import Limits
    from eosdb.wire.server import Interfere, Server

TransactionHandler = Callable[[ConsumerRecord[Key, Value], UserTransaction], Results]
"""A handler that also writes the user's tables, in the transaction of its record."""
BatchHandler = (
    Callable[[list[ConsumerRecord[Key, Value]]], Results]
    | Callable[[list[ConsumerRecord[Key, Value]], UserTransaction], Results]
)
"""A handler of batches (`batch=True`)."""
Handlers = Handler[Key, Value] | TransactionHandler[Key, Value] | BatchHandler[Key, Value]
Topics = str | Iterable[str] | re.Pattern[str]
MEMORY: Final = ":memory:"
WAL: Final = "wal"
_DEFAULTS: Final = BrokerConfig()
_ROOM_FOR_FAILURES: Final = {"max.message.bytes": 2**31 - 1, "cleanup.policy": "delete"}
"""Dead letters carry headers with the reason, so they are larger than the original records. They may have
no key, which a compacted topic needs."""


def connect(
    path: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    durability: Durability = "full",
    read_only: bool = False,
    create: bool = True,
    migrate: bool = True,
    adopt: bool | str = False,
    principal: str = "User:ANONYMOUS",
    config: BrokerConfig | None = None,
) -> Database:
    """Open an eosdb file; create it, or upgrade it to the newest schema, if necessary.

    `create=False` refuses a missing file, `migrate=False` refuses a file with an older schema. With
    `read_only` nothing is ever written. A returned call survives a power loss with `durability="full"`, a
    crash of the process with "normal", neither with "off" (for tests). `":memory:"` is a temporary file,
    which is removed when the database closes. `adopt` adds eosdb's tables to another application's SQLite
    file, atomically. That file must be in WAL mode; `adopt="wal"` switches it. `principal` is the identity
    that ACLs check; it is not authenticated. Raises DatabaseNotFoundError, NotAnEosdbFileError,
    CorruptDatabaseError, SchemaOutOfDateError, SchemaTooNewError, ReadOnlyDatabaseError,
    DatabaseLockedError, DatabaseFullError and ConfigError.
    """
    validation.check_choice("durability", durability, *get_args(Durability))
    for name, given in (("read_only", read_only), ("create", create), ("migrate", migrate)):
        check_switch(name, given)
    if adopt not in (False, True, WAL):
        raise ConfigError(f"adopt: got {adopt!r}, expected False, True or {WAL!r}")
    if adopt and read_only:
        raise ConfigError("adopt=True: adopting a file writes it; open it without read_only=True")
    if config is not None and not isinstance(config, BrokerConfig):
        raise ConfigError(f"config: got {config!r}, expected a BrokerConfig")
    clock = SystemClock() if clock is None else clock
    if not isinstance(clock, Clock):
        raise ConfigError(f"clock: got {clock!r}, expected a Clock, such as SystemClock()")
    validation.check_whole("clock.time_ms()", clock.time_ms(), 0)
    return Database(
        validation.check_file("path", path),
        clock,
        durability,
        read_only,
        validation.check_text("principal", principal, ConfigError),
        config or _DEFAULTS,
        partial(open_file, create=create, migrate=migrate, adopt=bool(adopt), to_wal=adopt == WAL),
    )


class Database(Closeable):
    """An open eosdb file, shared by any number of threads. A context manager that closes it.

    `admin` has the administrative calls, `broker` Kafka's requests; `path`, `clock` and `config` are the
    arguments of `connect`.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        durability: Durability,
        read_only: bool,
        principal: str,
        config: BrokerConfig,
        open_it: Callable[..., Opened],
    ) -> None:
        self.path: Final = path
        self.config: Final = config
        self._closing: Closing | None = None
        self._remove: Callable[[], object] = lambda: None
        # Links to a file must share its WAL and lock file, as in SQLite, so they are resolved here.
        file = os.path.realpath(path)
        if path == MEMORY:
            # decisions/0005: SQLite has no WAL in memory, so ":memory:" is a temporary file.
            folder, self._remove = folder_in_memory(self)
            file, durability = os.path.join(folder, "memory.db"), "off"
        with forking.at_work():
            opened = open_it(
                file,
                read_only=read_only,
                lock_timeout_ms=config.lock_timeout_ms,
                sync=durability != "off",
            )
            store = Store(
                file,
                apply=apply,
                durability=durability,
                read_only=read_only,
                lock_timeout_ms=config.lock_timeout_ms,
                slow_commit_ms=config.slow_commit_ms,
                external_checkpoints=config.external_checkpoints,
                opened=opened,
                name=file if path == MEMORY else os.path.abspath(path),
            )
        self._coordinator = TransactionCoordinator(store, clock, config)
        authorizer, metrics = Authorizer(principal, config.super_users), Metrics(clock, RATES)
        core = Core(clock, config, authorizer, store, self._coordinator, metrics)
        self.clock: Final = clock
        self._core: Final = core
        self._store: Final = store
        self._housekeeper: Final = housekeeping.Housekeeper(core)
        self.broker: Final = Broker(core)
        self._direct: Final = DirectTransport(self.broker)
        self.admin: Final = Admin(core)
        if not read_only:
            self._recover()

    def _recover(self) -> None:
        """Complete what killed processes have left behind. Closes the store if this fails."""
        self._coordinator.after_write = self._housekeeper.run_when_due
        if self.path != MEMORY:
            self._store.before_close(self._snapshot_at_close)
        try:
            self._coordinator.recover()
        except BaseException:
            with contextlib.suppress(EosdbError):  # The error of `recover` is raised instead.
                self._store.close(orderly=False)
            raise

    take_snapshot = face(housekeeping.take_snapshot)
    housekeeping = face(housekeeping.housekeeping)
    rebuild = face(verify.rebuild)
    verify = face(verify.verify)
    compact = face(compact.compact)
    backup = face(copies.backup)
    extract = face(extract.extract)
    restore_to = face(restore.restore_to)

    @property
    def is_published(self) -> bool:
        """Whether this is a published copy: it can only be opened with `read_only=True`."""
        with self._store.read() as connection:
            return not is_in_wal_mode(connection, self._store.path)

    @cached_property
    def engine(self) -> Engine:
        """A SQLAlchemy engine on the file, for queries and for your own tables."""
        from eosdb.store.schema.engine import make_engine

        store = self._store
        store.check_open()
        engine, self._close_engine = make_engine(
            store.path, store.read_only, store.lock_timeout_ms, store.note, store.check_open
        )
        store.before_rest(engine.dispose)
        return engine

    @keywords_of(ProducerSettings)
    def producer(
        self,
        *misplaced: Never,
        transport: Transport | LocalBroker | None = None,
        **config: Unpack[ProducerConfig],
    ) -> Producer:
        """Return a producer; the settings are Kafka's in snake_case. Raises ConfigError.

        `transport` carries its requests to the broker; None for direct calls.
        """
        self._store.check_open()
        check_by_name("producer", misplaced)
        return Producer(self._transport(transport), self.clock, **config)

    @keywords_of(ConsumerSettings)
    def consumer(
        self,
        group_id: str | None = None,
        *,
        transport: Transport | LocalBroker | None = None,
        key_deserializer: Callable[[bytes], MadeKey] | None = None,
        value_deserializer: Callable[[bytes], MadeValue] | None = None,
        **config: Unpack[ConsumerConfig],
    ) -> Consumer[MadeKey | Any, MadeValue | Any]:
        """Return a consumer; `read_committed` by default. Raises ConfigError.

        A null key or value stays None: the deserializer is not called for it. `transport` carries the
        consumer's requests to the broker; None for direct calls.
        """
        self._store.check_open()
        return Consumer(
            self._transport(transport),
            self.clock,
            group_id,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **config,
        )

    @keywords_of(ProcessorSettings, ProcessorConfig)
    def processor(
        self,
        topics: Topics,
        handler: Handlers[MadeKey, MadeValue],
        sink: str | None = None,
        *,
        group_id: str,
        transactional_id: str | None = None,
        transport: Transport | LocalBroker | None = None,
        **config: Unpack[ProcessorConfig[MadeKey, MadeValue]],
    ) -> Processor:
        """Return a consume–process–produce loop: `handler(record)` turns each record into records for
        `sink`.

        `handler(record, tx)` can also write your own tables in this file: `tx` is a `UserTransaction`, as
        in `begin`, and the loop stores rows, records and the offset in one commit. A handler is called
        with `tx` if it requires two parameters. With `batch=True` it gets a list of records of one
        partition instead of a record, and may raise `BatchFailed` to name the failed record.

        Call `run` in as many threads and processes as you like: the copies share the partitions of the
        group. With handlers of one parameter each copy has its own transactional id, which begins with
        `transactional_id` (default: the group id). The dead letter topic is created if it does not exist.
        Raises ConfigError, and UnknownTopicOrPartitionError if the topic
        `sink` does not exist.
        """
        self._store.check_open()
        requests = self._transport(transport)
        make_topic = partial(self.admin.create_topic, config=_ROOM_FOR_FAILURES, exist_ok=True)
        begin = partial(outbox.begin_parts, self._core)
        file = ProcessorFile(self._store.path, begin, make_topic, self.admin.list_scheduled)
        processor = Processor(
            requests,
            self.clock,
            topics,
            handler,
            sink,
            group_id,
            transactional_id,
            file,
            **config,
        )
        if sink is not None:
            self.broker.partitions_for(sink)
        if (dead := config.get("dead_letter_topic")) is not None:
            make_topic(dead)
        return processor

    def dead_letters(
        self, topic: str, *, transport: Transport | LocalBroker | None = None
    ) -> DeadLetters:
        """Return the dead letters in a topic, to inspect and to replay them."""
        self._store.check_open()
        return DeadLetters(self._transport(transport), self.clock, topic)

    def serve(
        self,
        port: int = 0,
        host: str = "localhost",
        *,
        require_sasl: bool = False,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        advertised: str | None = None,
        limits: Limits | None = None,
        interfere: Interfere | None = None,
    ) -> Server:
        """Serve this file to Kafka's clients, from threads of this process, until the server is closed.

        Returns a context manager that closes the server. Port 0 takes a free port (`server.port`,
        `server.bootstrap_servers`). "localhost" listens on 127.0.0.1 and, if the host has it, on ::1. Any
        other address needs TLS (PEM files, read again when they change; with `tls_ca` clients must present
        a certificate, too) and `require_sasl`, which makes users log in. Clients are sent to `advertised`
        (HOST:PORT), by default to the address by which they came. `limits` bounds connections and memory of
        clients (docs/wire.md); `interfere` is for tests (`eosdb.testing.kafka`). Raises ConfigError, also
        when the extra `serve` is not installed, and ListenError when the port is taken.
        """
        self._store.check_open()
        try:
            from eosdb.wire.security import security
            from eosdb.wire.server import Server
        except ImportError as error:
            raise ConfigError(needs_extra("the server", "serve", error)) from None
        checked = security(tls_cert, tls_key, tls_ca, require_sasl)
        return Server(self._core, host, port, checked, limits, interfere, advertised)

    def _transport(self, given: Transport | LocalBroker | None) -> Transport:
        way = given or self._direct
        return DirectTransport(way) if isinstance(way, LocalBroker) else way

    def begin(self) -> AbstractContextManager[UserTransaction]:
        """Begin one transaction over your own tables in this file and the log: it commits when the block
        ends, and is rolled back when the block raises.

        The block holds the file's only write lock, so keep it short: other writers wait, at most
        lock_timeout_ms. Inside the block, write to the log through the `UserTransaction` only: other writes
        raise IllegalStateError. A handler of `process` must not call `begin` (IllegalStateError); it takes
        `tx` as its second parameter. The block may be entered and left in different threads. Raises
        DatabaseLockedError when another writer holds the lock for too long.
        """
        check_may_begin(self._store.path)
        return outbox.begin(self._core)

    append_once = face(sink.append_once)
    outcome = face(outcome.outcome)

    def columns(self, view: str) -> dict[str, str]:
        """Return the columns of a table or view by name, each with its SQL type: INTEGER, REAL, TEXT or
        BLOB, and "" for a computed column of a view of yours. Empty if there is no such table or view."""
        validation.check_text("view", view)
        with self._store.read() as connection:
            return queries.columns(connection, view)

    def query(self, sql: str, parameters: Parameters = ()) -> QueryResult:
        """Run one SQL statement that only reads, on its own snapshot; rows are read lazily. `parameters`
        are the values of `?` in their order, or of `:name` by name.

        A result of 100 rows or more holds the snapshot, so the WAL cannot be truncated, until its last row
        is read or the result is closed (`with db.query(…) as rows:`). Raises InvalidRequestError for
        statements that SQLite refuses or that write.
        """
        validation.check_text("sql", sql)
        columns, rows = queries.query(self._store, sql, parameters)
        return QueryResult(columns, rows, partial(queries.types, self._store, sql))

    def scan_arrow(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = ("offset", "timestamp", "key", "value", "headers"),
        isolation_level: IsolationLevel = "read_committed",
        skip_lost: bool = False,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of a partition with offsets in [start, end) as Arrow record batches, each read
        on demand: `admin.scan` for DuckDB, Polars or pandas, without an object for each record.

        `columns` are named and typed as by Spark's Kafka connector: key, value, topic, partition, offset,
        timestamp, timestampType, headers; and producerId, producerEpoch, sequence, source_file. Raises
        what `admin.scan` raises, and IllegalStateError when pyarrow is not installed.
        """
        self._store.check_open()
        try:
            from eosdb.integrations import arrow
        except ModuleNotFoundError as error:
            raise IllegalStateError(needs_extra("scan_arrow", "lakehouse", error)) from None
        return arrow.batches(
            self.admin, topic_partition, start, end, columns, isolation_level=isolation_level,
            skip_lost=skip_lost, source_file=os.path.abspath(self.path),
        )  # fmt: skip

    def views(self) -> list[ViewDescription]:
        """Describe the documented views: their names, their columns, and what each shows."""
        with self._store.read() as connection:
            return queries.describe_views(connection)

    def info(self) -> dict[str, object]:
        """Return facts about the file: sizes, counts, versions, and readers that keep the WAL from
        shrinking."""
        return {"path": self.path, **queries.info(self._store)}

    def why(self, seen: Overview | None = None) -> list[Worry]:
        """Return the problems, most urgent first, each in a sentence with the command that solves it:
        transactions that hold back readers, groups without members or progress, dead letters, relays, a
        file that cannot be written, a write lock held for half a second. Resources that the principal may
        not describe are left out. `seen` is an overview just taken; without it, takes one."""
        seen = seen or self.admin.overview()
        found = replace(seen, write_held_by=write_holder(self._core))
        return worries(found, self.path)

    def publish_copy(
        self,
        target: str | os.PathLike[str],
        *,
        keep: int = 10,
        anew: bool = False,
        folder: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        on_progress: Progress | None = None,
    ) -> PublishReport | None:
        """Publish the current state of the file for readers on other hosts: the live file must only be
        opened on its own host. A published copy is read-only; `backup` and `restore_to` make an ordinary
        file of it.

        If `target` is a path, a copy replaces the previous one, and None is returned. If it is a URL
        (`s3://…`, by fsspec), an incremental snapshot is uploaded: only changed data is sent, the snapshot
        appears atomically, and the `keep` newest are retained. After a failure, the next call resumes the
        upload. `anew=True` uploads everything, to repair a damaged snapshot. The file is first copied, into
        `folder` or beside it. `on_progress(done, total)` counts bytes. Raises StorageError,
        DatabaseFullError, ConfigError, and IllegalStateError if `target` is an ordinary eosdb file, which
        is not replaced.
        """
        self._store.check_open()
        if not validation.is_url(target):
            copies.publish(self._store, validation.check_path("target", target))
            return None
        from eosdb.integrations.publishing import sending
        from eosdb.integrations.publishing.storage import Storage

        validation.check_whole("keep", keep, 1)
        storage = Storage.open(str(target), storage_options, self.clock)
        where = None if folder is None else validation.check_path("folder", folder)
        return report_progress(
            on_progress,
            lambda report: sending.publish(
                self._store, self.clock, storage, keep, anew, where, report
            ),
        )

    def metrics(self) -> dict[str, float]:
        """Return the counters of this object since it was opened: requests and their time by name, records
        and bytes in, repeated batches, errors by name, commits and fsyncs of SQLite; and rates over the
        last minute."""
        self._store.check_open()
        return {**self._core.metrics.snapshot(), **self._core.store.timings.counts()}

    def metrics_text(self) -> str:
        """Return figures in Prometheus' text format: the counters of this object (`metrics`), and the
        current state of the file (`Admin.overview`) as far as the principal may describe it.

        Names begin with `eosdb_`; times are in seconds, sizes in bytes (docs/observability.md).
        """
        from eosdb.integrations import exposition

        of_process = exposition.of_process(self.metrics(), self._core.store.timings.times())
        return exposition.written([*of_process, *exposition.of_file(self.admin.overview())])

    def close(self) -> None:
        """Take a final snapshot and release the file. Idempotent; after an interrupt, call it again."""
        self._close(orderly=True)

    def abandon(self) -> None:
        """Release the file without a final snapshot, as if the process died. For tests and simulations."""
        self._close(orderly=False)

    def _close(self, *, orderly: bool) -> None:
        if self._closing is None:
            if self._store.forked:
                self._closing = Closing()
                return
            self._store.check_may_close()
            sql = [self._close_engine] if "engine" in self.__dict__ else []
            self._closing = Closing(*sql, partial(self._store.close, orderly=orderly), self._remove)
        self._closing.run()

    def _repr_html_(self) -> str | None:
        with contextlib.suppress(EosdbError):
            return self.admin.overview()._repr_html_()
        return None

    def __repr__(self) -> str:
        state = "closed" if self._closing else "read only" if self._store.read_only else "open"
        return f"<eosdb.Database {self.path!r} {state}>"

    def _snapshot_at_close(self) -> None:
        # Closing must succeed even if the disk is full or another process holds the write lock.
        with contextlib.suppress(EosdbError):
            if self._store.timings.has_written:
                housekeeping.snapshot_all(self._core, sync=False)


Where: TypeAlias = Database | str | os.PathLike[str]


# decisions/0086: the function has one explicit signature, so that `help` and editors show the keywords.
@keywords_of(Database.processor, ProcessorConfig)
def process(
    db: Where,
    topics: Topics,
    handler: Handlers[MadeKey, MadeValue],
    sink: str | None = None,
    *,
    until_idle_ms: int | None = None,
    **config: Unpack[ProcessConfig[MadeKey, MadeValue]],
) -> ProcessReport:
    """Call `handler` for each record of `topics`, and store its results, rows and the offset exactly once.

    `db` is an open database, or the path of a file that exists. Runs until SIGTERM or SIGINT, or until no
    record has arrived for `until_idle_ms` and the group has read everything; then returns the report. For
    the other arguments and the errors see `Database.processor` and `Processor.run`.
    """
    with contextlib.ExitStack() as cleanup:
        opened = (
            db if isinstance(db, Database) else cleanup.enter_context(connect(db, create=False))
        )
        return opened.processor(topics, handler, sink, **config).run(until_idle_ms)
