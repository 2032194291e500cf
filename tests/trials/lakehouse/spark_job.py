"""A Spark program: its arguments are JARS read FORMAT PATH, or JARS stream NUMBER.

`read` prints where the rows of a table came from, as JSON; `stream` is the recipe of that number in
docs/lakehouse.md, in pieces of 400 records, so that a kill meets one.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from typing import Any

from tests.tidy.tree import ROOT

_PLACE = ("topic", "partition", "offset")


def session(jars: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if "delta-spark" in jars:
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    return builder.config(map=settings).getOrCreate()


def recipes() -> list[str]:
    page = (ROOT / "docs/lakehouse.md").read_text(encoding="utf-8")
    first, *others = re.findall(r"(?s)```py\n(.*?)```", page)
    with_source = first.partition("query = ")[0]
    found = [first, *(with_source + other for other in others)]
    return [it.replace('="earliest"', '="earliest", maxOffsetsPerTrigger=400') for it in found]


def main(jars: str, command: str, *words: str) -> None:
    spark = session(jars)
    if command == "read":
        format, path = words
        rows = spark.read.format(format).load(path).select(*_PLACE).collect()
        print(json.dumps(sorted([*row] for row in rows)))
    else:
        exec(recipes()[int(words[0])], {"spark": spark})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
