"""The environment of a Spark that is as small as can be, and whose JVM finds its classes in an archive.

`python -m tests.spark.small` makes the archive, from what docs/spark.md does (scripts/setup.sh). A
session needs half of the CPU time then. Java ignores an archive of another Java or class path, and any
if its class path has a folder with something in it, such as SPARK_CONF_DIR.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from scripts.pages import python_of
from tests.tidy.tree import ROOT

ARCHIVE: Final = Path(sys.prefix, "spark.jsa")
_SETTINGS: Final = Path(__file__).with_suffix(".conf")


def environment(archive: str | None = None) -> dict[str, str]:
    """Variables that every new session of this process and its children heeds."""
    if archive is None:
        archive = f"-XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    # A session that lives for seconds is over before thorough compilation pays.
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable {archive}"
    arguments = f"--properties-file {_SETTINGS} --driver-java-options '{java}' pyspark-shell"
    return {"PYSPARK_SUBMIT_ARGS": arguments, "SPARK_LOCAL_IP": "127.0.0.1"}


def make_archive() -> None:
    """Java makes it when it ends, of the classes that it has used."""
    unfinished = ARCHIVE.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # As long as Java has its standard output open.
            [sys.executable, "-c", python_of((ROOT / "docs/spark.md").read_text())],
            env=os.environ | environment(f"-XX:ArchiveClassesAtExit={unfinished}"),
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if not unfinished.exists():
        sys.exit(f"{done.stdout}{done.stderr}\nno archive: each Spark of the tests starts slowly")
    unfinished.replace(ARCHIVE)


if __name__ == "__main__":
    make_archive()
