"""One Spark session for all tests, with the JDBC driver where one is found."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark  # noqa: F401  Without it, all of the folder is skipped at once.
import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.tidy.tree import ROOT

if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip(
        "NO JAVA: nothing of Spark is tested here; apt-get install default-jre-headless",
        allow_module_level=True,
    )

from eosdb.spark_io import jar


def builder(cores: str = "local[2,3]") -> Any:
    """A session as small as can be; three attempts for each task."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        made = SparkSession.builder.master(cores)
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
        "spark.speculation": "true",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if jar.find() is not None:
        conf |= jar.spark_conf()
    for name, value in conf.items():
        made = made.config(name, value)
    return made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # Spark's workers have the environment in which the session began.
    os.environ["EOSDB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder().getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def with_jdbc() -> None:
    """For tests that need the driver."""
    if jar.find() is None:
        pytest.skip(f"NO SQLITE JDBC DRIVER: JDBC is not tested here; {jar.INSTALL}")


TP0, TP1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def fill(path: Path, count: int = 60, topic: str = "orders") -> list[bytes | None]:
    """Committed, aborted and plain records over two partitions, one transaction left open. Returns the
    values that a read_committed reader may see."""
    values: list[bytes | None] = []
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic(topic, partitions=2)
        producer = db.producer(transactional_id=f"maker-{topic}")
        producer.init_transactions()
        for i in range(count // 10):
            producer.begin_transaction()
            made = [f"{topic} {i} {j}" for j in range(9)]
            for j, value in enumerate(made):
                headers = [("h", b"\x00"), ("n", None)] if j == 0 else []
                producer.send(topic, value, key=f"k{j}", headers=headers)
            if i % 4 == 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                values += [value.encode() for value in made]
            plain = RecordBatch([Record(value=b"plain %d" % i)])
            db.broker.append(TopicPartition(topic, i % 2), plain)
            values.append(b"plain %d" % i)
        tp = TopicPartition(topic, 0)
        me = db.broker.init_producer_id(f"open-{topic}", 900_000)
        open_batch = RecordBatch([Record(value=b"open")], *me, 0, True)
        db.broker.append(tp, open_batch, transactional_id=f"open-{topic}")
        db.broker.append(tp, RecordBatch([Record(value=b"waits")]))
    return sorted(values, key=lambda value: value or b"")


@pytest.fixture
def shop(db_path: Path) -> Path:
    fill(db_path)
    return db_path


def values(frame: Any) -> list[bytes]:
    """The column value, sorted."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())
