"""Sessions as users have them: not registered, with and without filter pushdown, with SQL and a catalog."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import pyspark_eosdb
from eosdb import spark_io
from eosdb.spark_io import jdbc, python
from eosdb.spark_io.planning.errors import SparkOptionError


def test_a_spark_that_is_too_old_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.1.1")
    with pytest.raises(
        ImportError, match=r"^eosdb.spark_io needs PySpark 4.2 or newer, found 4.1.1"
    ):
        importlib.reload(spark_io)
    # What Spark finds by itself is still there, and says so when it is used.
    monkeypatch.delitem(sys.modules, "eosdb.spark_io")
    monkeypatch.delitem(sys.modules, "eosdb.spark_io.source")
    found = importlib.reload(pyspark_eosdb).DefaultSource
    with pytest.raises(ImportError, match=r"needs PySpark 4\.2"):
        found({})
    monkeypatch.undo()
    assert importlib.reload(pyspark_eosdb).DefaultSource.name() == found.name() == "eosdb"


def test_workers_run_this_python_unless_somebody_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = SimpleNamespace(master="local[2]", pythonExec="python3")
    remote = SimpleNamespace(master="spark://x:7077", pythonExec="python3")
    for context in (local, remote):
        session: Any = SimpleNamespace(sparkContext=context)
        with monkeypatch.context() as patch:
            patch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
            python.use_this_python(session)
            assert context.pythonExec == "python3"
            patch.delenv("PYSPARK_PYTHON")
            python.use_this_python(session)
    assert (local.pythonExec, remote.pythonExec) == (sys.executable, "python3")
    with monkeypatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
        jdbc.spark_conf()
        assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"
        patch.delenv("PYSPARK_PYTHON")
        jdbc.spark_conf()
        assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("module", ["eosdb", "pyarrow.compute"])
def test_workers_without_eosdb_are_named(module: str) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/usr/bin/python3"))
    connect: Any = SimpleNamespace()
    for made, which in ((session, "/usr/bin/python3"), (connect, "a Python of the server's")):
        said = pytest.raises(SparkOptionError, match=f"run {which}, which has no {module}")
        with said, python.explained(made):
            raise RuntimeError(f"ModuleNotFoundError: No module named '{module}'")
    with pytest.raises(RuntimeError, match="numpy"), python.explained(session):
        raise RuntimeError("ModuleNotFoundError: No module named 'numpy'")


@pytest.mark.process
def test_the_data_source_imports_no_pandas() -> None:
    """Spark starts a Python for each step of a plan, and pandas is a third of a second of CPU."""
    program = "import sys, eosdb.spark_io.source; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
