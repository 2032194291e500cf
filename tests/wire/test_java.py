"""Java's clients: topics, transactions, a group and fencing, as they are before a broker of Kafka."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import eosdb
from tests.judges.artifacts import QUIET, class_path
from tests.judges.java import JARS, PROGRAM, SAID
from tests.judges.verdicts import MissingError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def jars() -> str:
    """Their class path, fetched once for this checkout."""
    if shutil.which("javac") is None:
        pytest.skip(
            "NO JAVA COMPILER: Java is not tested here; apt-get install default-jdk-headless"
        )
    try:
        return class_path("java", JARS)
    except MissingError as error:
        pytest.skip(f"NO KAFKA JAR: Java is not tested here; {error}")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_clients_find_what_they_find_before_kafka(
    jars: str, tmp_path: Path, protocol: str
) -> None:
    with eosdb.connect(tmp_path / "x.db") as db, db.serve() as server:
        command = ["java", *QUIET, "-cp", jars, str(PROGRAM), server.bootstrap_servers, protocol]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == SAID(), done.stderr
        assert db.verify().ok
