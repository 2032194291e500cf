"""A test of a Java program starts a cluster by a command, as the example shows. `make judges` asks the
examples in Node and Go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT
from tests.trials.judges.artifacts import QUICK, QUIET, class_path, java
from tests.trials.judges.java import JARS
from tests.trials.judges.verdicts import MissingError

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_test_in_java_starts_a_cluster_by_a_command() -> None:
    try:
        program, jars = java(), class_path("java", JARS)
    except MissingError as error:
        pytest.skip(str(error))
    example = ROOT / "examples/kafka_tests/ShopTest.java"
    done = ended(
        [program, "-Xmx128m", *QUICK, *QUIET, "-cp", jars, str(example)],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "order 42: paid\n"
