"""`eosdb spark`: common jobs without a program: look, copy and transform streams.

Spark starts when a command runs, not when its help is shown.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eosdb.cli import output
from eosdb.cli.session import Session
from eosdb.errors import ConfigError
from eosdb.model.validation import check_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

F = TypeVar("F", bound=Callable[..., Any])
_DAY = "to_date(timestamp) AS day"


@click.group()
def spark() -> None:
    """Query and stream with Spark. Needs pip install 'eosdb[spark]' and Java."""


def _options(function: F) -> F:
    """The options of every job, for reading and for Spark."""
    for add in (
        click.option("--master", default="local[*]", show_default=True, help="Spark master URL."),
        click.option(
            "--conf", "confs", multiple=True, metavar="NAME=VALUE", callback=_pairs,
            help="Spark setting NAME=VALUE (repeatable).",
        ),
        click.option(
            "--option", "options", multiple=True, metavar="NAME=VALUE", callback=_pairs,
            help="Reader option, such as startingTimestamp=1700000000000 (repeatable).",
        ),
        click.option("--files", metavar="PATH", help="Directory or glob of files, instead of --db."),
        click.option("--subscribe", metavar="TOPICS", help="Comma-separated list of topics."),
    ):  # fmt: skip
        function = add(function)
    return function


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"got {text!r}, expected NAME=VALUE")
        pairs[name] = value
    return pairs


@spark.command()
@_options
@click.option(
    "--where",
    metavar="SQL",
    help='Only records that match this condition, such as "partition = 0".',
)
@click.option("--sql", "query", metavar="SQL", help="Query over the view `records`.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most this many records.",
)
@click.pass_obj
def read(
    session: Session,
    subscribe: str | None,
    files: str | None,
    options: dict[str, str],
    confs: dict[str, str],
    master: str,
    where: str | None,
    query: str | None,
    limit: int,
) -> None:
    """Show committed records as Spark sees them; `key` and `value` as text.

    \b
    Example:
      eosdb spark read --subscribe orders --where "offset >= 100"
      eosdb spark read --sql "SELECT topic, count(*) AS n FROM records GROUP BY topic"
    """
    with _spark(master, confs) as spark_session:
        from eosdb.spark_io import api

        given = _given(options, subscribe)
        frame = _as_text(api.read(spark_session, _path(session, files), **given))
        if where is not None:
            frame = frame.where(where)
        if query is not None:
            frame.createOrReplaceTempView("records")
            frame = spark_session.sql(query)
        frame.show(limit, truncate=60)


@spark.command()
@_options
@click.option("--checkpoint", required=True, type=click.Path(file_okay=False),
              help="Checkpoint directory; one for each query.")  # fmt: skip
@click.option("--to-topic", metavar="TOPIC", help="Append to this topic, exactly once.")
@click.option("--to-parquet", metavar="FOLDER", help="Write Parquet, partitioned by topic and day.")
@click.option(
    "--sql", "query", metavar="SQL",
    help="Query over the view `records` to transform the stream; --to-topic needs its columns key and "
    "value.",
)  # fmt: skip
@click.option(
    "--group", help="Commit the progress as this group's offsets, so that its lag can be monitored."
)
@click.option(
    "--follow",
    is_flag=True,
    help="Keep running; otherwise stop once everything available has been read.",
)
@click.pass_obj
def stream(
    session: Session,
    subscribe: str | None,
    files: str | None,
    options: dict[str, str],
    confs: dict[str, str],
    master: str,
    checkpoint: str,
    to_topic: str | None,
    to_parquet: str | None,
    query: str | None,
    group: str | None,
    follow: bool,
) -> None:
    """Stream committed records through a SQL query into a topic or into Parquet.
    Killed and restarted with the same checkpoint, it continues without loss or duplicates.

    \b
    Example:
      eosdb spark stream --subscribe orders --to-topic shouts --checkpoint /data/cp \\
        --sql "SELECT key, upper(value) AS value FROM records"
    """
    if (to_topic is None) == (to_parquet is None):
        raise click.UsageError("give --to-topic or --to-parquet")
    with _spark(master, confs) as spark_session:
        from eosdb.spark_io import api

        given = {"startingOffsets": "earliest", **_given(options, subscribe)}
        if group is not None:
            given["groupId"] = group
        frame = api.read_stream(spark_session, _path(session, files), **given)
        if query is not None:
            _as_text(frame).createOrReplaceTempView("records")
            frame = spark_session.sql(query)
        if to_topic is not None:
            if query is None:
                frame = frame.select("key", "value")
            writer = frame.writeStream.format("eosdb").option("topic", to_topic)
            writer = writer.option("path", _path(session, None))
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
        rows = sum(progress["numInputRows"] for progress in running.recentProgress)
    output.line(f"read {rows} records")


@contextlib.contextmanager
def _spark(master: str, confs: dict[str, str]) -> Iterator[SparkSession]:
    """A session for one job; Spark's errors become one line."""
    _check_text("argument", tuple(click.get_current_context().params.values()))
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        import_module("eosdb.spark_io")  # Says so if Spark is too old.
    except ModuleNotFoundError as error:
        raise ConfigError(f"Spark is not installed ({error}); pip install 'eosdb[spark]'") from None
    except ImportError as error:
        raise ConfigError(str(error)) from None
    running = SparkSession.getActiveSession()
    session = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = running or _start(master, confs)
        yield session
    except PySparkException as error:
        raise ConfigError(f"Spark says: {_reason(str(error))}") from None
    finally:
        if session is not None and running is None:
            session.stop()


def _check_text(name: str, given: object) -> None:
    """Spark receives arguments over a connection that breaks on invalid UTF-8. Raises ConfigError."""
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
    """The line of a long message that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line and not line.startswith(("at ", "File ")):
            return line
    return lines[0] if lines else "nothing"


def _path(session: Session, files: str | None) -> str:
    path = files or session.path
    if path is None:
        raise click.UsageError("name the database file: --db PATH, or set EOSDB_DB")
    return check_text("path", path, ConfigError)


def _given(options: dict[str, str], subscribe: str | None) -> dict[str, object]:
    return {**options, **({} if subscribe is None else {"subscribe": subscribe})}


def _as_text(frame: DataFrame) -> DataFrame:
    """Key and value as strings, the other columns as they are."""
    return frame.selectExpr(
        *(
            f"CAST({name} AS STRING) AS {name}" if name in ("key", "value") else f"`{name}`"
            for name in frame.columns
        )
    )
