"""SQL views through JDBC: typed, with fixed offsets, and split into tasks that use SQLite's index.

Use this for programs that need JDBC, and for views other than records. Otherwise use the data source: it
needs no jar, has the columns of Spark's Kafka connector, and verifies checksums.

The SQLite JDBC driver comes from the argument, the environment variable, Debian's package, or Maven.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import eosdb
from eosdb import TopicPartition
from eosdb.admin import consistent_cut
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.python import name_this_python

ENVIRONMENT = "EOSDB_SQLITE_JDBC_JAR"
DRIVER = "org.sqlite.JDBC"
_DEBIAN_JAR = "/usr/share/java/xerial-sqlite-jdbc.jar"
_DEBIAN_NATIVE = "/usr/lib/*/jni/libsqlitejdbc.so"
_MAVEN = "org.xerial:sqlite-jdbc:3.50.3.0"
INSTALL = "apt-get install libxerial-sqlite-jdbc-java libxerial-sqlite-jdbc-jni"


def find(jar: str | None = None) -> str | None:
    """Return the path of the driver's jar; None if this machine has none.

    Raises SparkOptionError if the jar named by the argument or by EOSDB_SQLITE_JDBC_JAR does not exist.
    """
    for named, where in ((jar, "jar"), (os.environ.get(ENVIRONMENT), ENVIRONMENT)):
        if named:
            if not os.path.isfile(named):
                raise SparkOptionError(
                    f"{where}: there is no file {named}; name the jar of the SQLite JDBC driver, or "
                    f"install Debian's: {INSTALL}"
                )
            return os.path.abspath(named)
    return _DEBIAN_JAR if os.path.isfile(_DEBIAN_JAR) else None


def spark_conf(jar: str | None = None) -> dict[str, str]:
    """Return the configuration of a session, for `SparkSession.builder.config(map=…)`: the jar of the
    SQLite JDBC driver with Debian's native library, or Maven coordinates, which Spark downloads.

    Also sets the environment variable PYSPARK_PYTHON to this Python, unless it is already set: it selects
    the Python of Spark's workers, and no session setting does. Call it before the session's JVM starts.
    Raises SparkOptionError for a jar that does not exist.
    """
    name_this_python()
    driver = find(jar)
    if driver is None:
        return {"spark.jars.packages": _MAVEN}
    conf = {"spark.jars": driver}
    native = glob.glob(_DEBIAN_NATIVE)
    if driver == _DEBIAN_JAR and native:
        folder = os.path.dirname(native[0])
        conf["spark.driver.extraLibraryPath"] = folder
        conf["spark.executor.extraLibraryPath"] = folder
    return conf


_SPARK_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "STRING", "BLOB": "BINARY"}
_RECORDS = ("committed_records", "all_records")
_BUSY_MS = 30_000
_ROWS_PER_TASK = 250_000
_RANGES_PER_TASK = 200
"""SQLite refuses an expression of more than a thousand."""


@dataclass(frozen=True, slots=True)
class JdbcOptions:
    """Arguments of `spark.read.jdbc`: the reader's `options`, and one predicate for each task."""

    url: str
    table: str
    options: dict[str, str]
    predicates: tuple[str, ...]


def jdbc_options(
    path: str | os.PathLike[str],
    view: str = "committed_records",
    topics: Iterable[str] | None = None,
    *,
    rows_per_task: int = _ROWS_PER_TASK,
) -> JdbcOptions:
    """Return URL, column types and predicates for a view of the file at `path`.

    For a view of records, typed ones included, the offsets are fixed now: the predicates name a range of
    each partition, taken from one snapshot and such that every transaction is read whole or not at all.
    All tasks read these ranges whenever they run, and SQLite finds them by index. Any other view is read
    by one task, as it is when the task runs. Raises SparkOptionError for an unknown view, and if `topics`
    are given for a view that has none.
    """
    name = os.path.abspath(os.fspath(path))
    with eosdb.connect(name, read_only=True) as db:
        columns = db.columns(view)
        if not columns:
            raise SparkOptionError(
                f"{name}: there is no table or view {view!r}; see `eosdb sql .views`"
            )
        _check_folder(db, name)
        typed = {it.name: it.topic for it in db.admin.list_views()}
        predicates: tuple[str, ...] = ()
        if view in _RECORDS:
            predicates = _predicates(db, topics, "partition", "offset", rows_per_task)
        elif view in typed:
            if topics is not None:
                raise SparkOptionError(f"view {view} has only topic {typed[view]}")
            predicates = _predicates(db, [typed[view]], "_partition", "_offset", rows_per_task)
        elif topics is not None:
            raise SparkOptionError(f"view {view} has no topics to choose from")
    return JdbcOptions(
        # Spark passes LIKE and startswith to SQLite, whose LIKE otherwise ignores the case.
        url=f"jdbc:sqlite:file:{quote(name)}?mode=ro&busy_timeout={_BUSY_MS}&case_sensitive_like=true",
        table='"' + view.replace('"', '""') + '"',
        options={
            "driver": DRIVER,
            "customSchema": ", ".join(
                f"`{column}` {_SPARK_TYPES[kind]}"
                for column, kind in columns.items()
                if kind in _SPARK_TYPES
            ),
            # Spark passes NaN and Infinity as names, which SQLite takes for columns.
            "pushDownPredicate": str("REAL" not in columns.values()).lower(),
        },
        predicates=predicates,
    )


def read_jdbc(
    spark: SparkSession,
    path: str | os.PathLike[str],
    view: str = "committed_records",
    topics: Iterable[str] | None = None,
) -> DataFrame:
    """Return the view as a DataFrame; see `jdbc_options`.

    Times are BIGINT ms and keys BINARY, because Spark passes filters on other types to SQLite as text,
    which never compares equal: use `timestamp_millis(timestamp)` and `CAST(key AS STRING)` in Spark.

    Raises SparkOptionError, also if the session has no SQLite driver (see `spark_conf`).
    """
    options = jdbc_options(path, view, topics)
    properties: Mapping[str, str] = options.options
    try:
        if options.predicates:
            frame = spark.read.jdbc(
                options.url,
                options.table,
                predicates=list(options.predicates),
                properties=dict(properties),
            )
        else:
            frame = spark.read.jdbc(options.url, options.table, properties=dict(properties))
        frame.schema  # noqa: B018  # Makes Spark Connect load the driver now.
        return frame
    except Exception as error:
        if "ClassNotFoundException" in str(error) and DRIVER in str(error):
            raise SparkOptionError(
                "this Spark session has no SQLite JDBC driver; make it (over Spark Connect: the server) "
                "with SparkSession.builder.config(map=eosdb.spark_io.spark_conf()), and before that "
                f"install one, such as Debian's: {INSTALL}"
            ) from error
        if isinstance(error, PySparkException):
            raise SparkOptionError(f"{path}: Spark cannot read {view}: {error}") from error
        raise


def _check_folder(db: eosdb.Database, path: str) -> None:
    """Raises SparkOptionError for a live file in a read-only folder, where the driver cannot create the
    shared memory of SQLite's WAL."""
    if not db.is_published and not os.access(os.path.dirname(path), os.W_OK):
        raise SparkOptionError(
            f"{path}: JDBC must create {path}-shm beside a live file, and the folder is not writable; read "
            "it with read(), or read a copy made by eosdb.spark_io.snapshot"
        )


def _predicates(
    db: eosdb.Database,
    topics: Iterable[str] | None,
    partition: str,
    offset: str,
    rows_per_task: int,
) -> tuple[str, ...]:
    """One predicate for each task: part of a large partition, or several small partitions."""
    cut = db.admin.consistent_cut()
    wanted = None if topics is None else set(topics)
    missing = sorted((wanted or set()) - {tp.topic for tp in cut})
    if missing:
        raise SparkOptionError(f"{db.path}: there is no topic {', '.join(missing)}")
    by_topic = partition == "partition"
    file_id = db.broker.cluster_id()
    numbers: dict[str, int] = dict(db.query(consistent_cut.TOPIC_NUMBERS).rows)
    tasks: list[list[str]] = [[]]
    filled = 0
    for tp, (offsets, end) in cut.items():
        if wanted is not None and tp.topic not in wanted:
            continue
        start = offsets.log_start_offset
        while start < end:
            stop = min(start + rows_per_task, end)
            is_full = filled + stop - start > rows_per_task or len(tasks[-1]) == _RANGES_PER_TASK
            if filled and is_full:
                tasks.append([])
                filled = 0
            first = consistent_cut.first_offset(start, file_id, tp.topic, numbers[tp.topic])
            tasks[-1].append(_range(tp, first, stop, partition, offset, by_topic=by_topic))
            filled += stop - start
            start = stop
    # An empty file has one task, which reads nothing.
    return tuple(" OR ".join(task) if task else "1 = 0" for task in tasks)


def _range(
    tp: TopicPartition, first: str, stop: int, partition: str, offset: str, *, by_topic: bool
) -> str:
    topic = f'"topic" = {consistent_cut.literal(tp.topic)} AND ' if by_topic else ""
    return (
        f'({topic}"{partition}" = {tp.partition} AND "{offset}" >= {first} AND "{offset}" < {stop})'
    )
