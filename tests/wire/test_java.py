"""Java's clients: topics, transactions, a group and fencing, as they are before a broker of Kafka."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import eosdb
from tests.programs import ended
from tests.trials.judges.artifacts import QUICK, QUIET, class_path
from tests.trials.judges.java import JARS, PROGRAM, SAID
from tests.trials.judges.verdicts import MissingError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the program, with its jars, which are fetched once for this checkout."""
    if shutil.which("javac") is None:
        pytest.skip(
            "NO JAVA COMPILER: Java is not tested here; apt-get install default-jdk-headless"
        )
    try:
        jars = class_path("java", JARS)
    except MissingError as error:
        pytest.skip(f"NO KAFKA JAR: Java is not tested here; {error}")
    folder = tmp_path_factory.mktemp("classes")
    options = [f"-J{each}" for each in QUICK]
    subprocess.run(["javac", *options, "-cp", jars, "-d", folder, PROGRAM], check=True)
    return f"{folder}:{jars}"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_clients_find_what_they_find_before_kafka(
    classes: str, tmp_path: Path, protocol: str
) -> None:
    with eosdb.connect(tmp_path / "x.db") as db, db.serve() as server:
        command = ["java", *QUICK, *QUIET, "-cp", classes, PROGRAM.stem]
        done = ended([*command, server.bootstrap_servers, protocol])
        assert done.stdout == SAID(), done.stderr
        assert db.verify().ok
