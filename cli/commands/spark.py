"""`eosdb spark`: batch and streaming jobs without a program. Spark starts with a job, not for its help."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileGroup
from eosdb.cli.params import settings
from eosdb.cli.session import Session
from eosdb.cli.stopping import until_stopped
from eosdb.errors import ConfigError
from eosdb.model.validation import check_text
from eosdb.model.words import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

F = TypeVar("F", bound=Callable[..., Any])
_DAY = "to_date(timestamp) AS day"


class _Source(TypedDict):
    """What a job reads, and the Spark that runs it."""

    subscribe: str | None
    files: str | None
    options: dict[str, str]
    confs: dict[str, str]
    master: str


@click.group(cls=FileGroup)
def spark() -> None:
    """Query and stream with Spark. Needs the extra spark, and Java."""


def _options(function: F) -> F:
    """Add the options that all jobs share; they come as the `_Source` of the job."""
    for add in (
        click.option("--master", default="local[*]", show_default=True, help="Spark master URL."),
        click.option(
            "--conf", "confs", multiple=True, metavar="NAME=VALUE", callback=settings,
            help="Spark setting NAME=VALUE (repeatable).",
        ),
        click.option(
            "--option", "options", multiple=True, metavar="NAME=VALUE", callback=settings,
            help="Reader option, such as startingTimestamp=1700000000000 (repeatable).",
        ),
        click.option("--files", metavar="PATH", help="Directory or glob of files, instead of FILE."),
        click.option("--subscribe", metavar="TOPICS", help="Comma-separated list of topics."),
    ):  # fmt: skip
        function = add(function)
    return function


@spark.command()
@_options
@click.option(
    "--where", metavar="SQL",
    help='Only records that match this condition, such as "partition = 0".',
)  # fmt: skip
@click.option("--sql", "query", metavar="SQL", help="Query over the view `records`.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True,
    help="Show at most this many records.",
)  # fmt: skip
def read(
    session: Session,
    /,
    where: str | None,
    query: str | None,
    limit: int,
    **source: Unpack[_Source],
) -> None:
    """Show committed records as a Spark DataFrame, with `key` and `value` as text.

    \b
    Example:
      eosdb spark read --subscribe orders --where "offset >= 100"
      eosdb spark read --sql "SELECT topic, count(*) AS n FROM records GROUP BY topic"
    """
    path = _path(session, source)
    with _spark(source) as spark_session:
        from eosdb.spark_io import api

        frame = _as_text(api.read(spark_session, path, **_reader(source)))
        if where is not None:
            frame = frame.where(where)
        if query is not None:
            frame.createOrReplaceTempView("records")
            frame = spark_session.sql(query)
        frame.show(limit, truncate=60)


@spark.command()
@_options
@click.option("--checkpoint", required=True, type=click.Path(file_okay=False),
              help="Checkpoint directory; each query needs its own.")  # fmt: skip
@click.option("--to-topic", metavar="TOPIC", help="Append to this topic, exactly once.")
@click.option("--to-parquet", metavar="FOLDER", help="Write Parquet, partitioned by topic and day.")
@click.option(
    "--sql", "query", metavar="SQL",
    help="Query over the view `records` to transform the stream; --to-topic needs its columns key and "
    "value.",
)  # fmt: skip
@click.option(
    "--group",
    help="Commit the progress as offsets of this group, so that its lag can be monitored.",
)
@click.option(
    "--follow", is_flag=True,
    help="Keep running; without it, stop after the records that are there now.",
)  # fmt: skip
def stream(
    session: Session,
    /,
    checkpoint: str,
    to_topic: str | None,
    to_parquet: str | None,
    query: str | None,
    group: str | None,
    follow: bool,
    **source: Unpack[_Source],
) -> None:
    """Stream committed records through a SQL query into a topic or into Parquet. Restarted with the same
    checkpoint, also after a kill, it resumes without loss or duplicates.

    \b
    Example:
      eosdb spark stream --subscribe orders --to-topic shouts --checkpoint /data/cp \\
        --sql "SELECT key, upper(value) AS value FROM records"
    """
    if (to_topic is None) == (to_parquet is None):
        raise click.UsageError("give --to-topic or --to-parquet")
    if follow:
        until_stopped()
    path = _path(session, source)
    with _spark(source) as spark_session:
        from eosdb.spark_io import api

        reader = {"startingOffsets": "earliest", **_reader(source)}
        if group is not None:
            reader["groupId"] = group
        frame = api.read_stream(spark_session, path, **reader)
        if query is not None:
            _as_text(frame).createOrReplaceTempView("records")
            frame = spark_session.sql(query)
        if to_topic is not None:
            if query is None:
                frame = frame.select("key", "value")
            writer = frame.writeStream.format("eosdb").option("topic", to_topic)
            writer = writer.option("path", _path(session))
        else:
            if query is None:
                frame = frame.selectExpr("*", _DAY)
            by = [name for name in ("topic", "day") if name in frame.columns]
            writer = frame.writeStream.format("parquet").option("path", str(to_parquet))
            writer = writer.partitionBy(*by) if by else writer
        writer = writer.option("checkpointLocation", checkpoint)
        running = (writer if follow else writer.trigger(availableNow=True)).start()
        try:
            running.awaitTermination()
        except KeyboardInterrupt:
            running.stop()
            if not follow:
                raise
        rows = sum(progress["numInputRows"] for progress in running.recentProgress)
    output.line(f"read {rows} records")


@contextlib.contextmanager
def _spark(source: _Source) -> Iterator[SparkSession]:
    """A Spark session for one job. Spark's exceptions become ConfigError, of one line."""
    _check_text("argument", tuple(click.get_current_context().params.values()))
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        import_module("eosdb.spark_io")  # Says so if Spark is too old.
    except ModuleNotFoundError as error:
        raise ConfigError(needs_extra("eosdb spark", "spark", error)) from None
    except ImportError as error:
        raise ConfigError(str(error)) from None
    running = SparkSession.getActiveSession()
    session = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = running or _start(source["master"], source["confs"])
        yield session
    except PySparkException as error:
        raise ConfigError(f"Spark says: {_reason(str(error))}") from None
    finally:
        if session is not None and running is None:
            session.stop()


def _check_text(name: str, given: object) -> None:
    """Raises ConfigError for invalid UTF-8, which would cost Spark its connection to the JVM."""
    if isinstance(given, str):
        check_text(name, given, ConfigError)
    elif isinstance(given, dict | tuple):
        for value in given:
            _check_text(name, value)
    if isinstance(given, dict):
        _check_text(name, tuple(given.values()))


def _start(master: str, confs: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("eosdb")
    for name, value in {"spark.ui.enabled": "false", "spark.log.level": "OFF", **confs}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _reason(text: str) -> str:
    """The line of Spark's long message that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line and not line.startswith(("at ", "File ")):
            return line
    return lines[0] if lines else "nothing"


def _path(session: Session, source: _Source | None = None) -> str:
    return check_text("path", (source and source["files"]) or session.named_path(), ConfigError)


def _reader(source: _Source) -> dict[str, object]:
    """The options of the reader."""
    subscribe = source["subscribe"]
    return {**source["options"], **({} if subscribe is None else {"subscribe": subscribe})}


def _as_text(frame: DataFrame) -> DataFrame:
    """Key and value as strings, the other columns as they are."""
    return frame.selectExpr(
        *(
            f"CAST({name} AS STRING) AS {name}" if name in ("key", "value") else f"`{name}`"
            for name in frame.columns
        )
    )
