"""Spark's daemon (`spark.python.daemon.module`), which imports what tasks need before it forks workers.
Each costs a tenth of a second of CPU so. The demo, the pages and a job of test_commands have Spark's own.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from pyspark.daemon import manager

_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}

if __name__ == "__main__":
    os.environ.update(_NO_THREADS)
    for name in ("pandas", "pyspark.worker", "eosdb.spark_io.source"):
        importlib.import_module(name)
    if sys.platform == "linux" and len(threads := os.listdir("/proc/self/task")) > 1:
        raise SystemExit(f"the daemon has {len(threads)} threads before it forks")
    gc.freeze()
    manager()
