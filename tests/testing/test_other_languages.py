"""Tests of Java, Node and Go programs start a cluster by a command, as the examples show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.judges.artifacts import QUIET, class_path, go_own_test, java, node_with
from tests.judges.java import JARS
from tests.judges.other_clients import KAFKAJS
from tests.judges.suites import KAFKA_GO, MODULE
from tests.judges.verdicts import MissingError
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

EXAMPLES = ROOT / "examples/kafka_tests"


def java_test() -> tuple[list[str], dict[str, str]]:
    jars = class_path("java", JARS)
    return [java(), "-Xmx128m", *QUIET, "-cp", jars, str(EXAMPLES / "ShopTest.java")], {}


def node_test() -> tuple[list[str], dict[str, str]]:
    node, modules = node_with("kafkajs", f"kafkajs@{KAFKAJS}")
    return [node, "--test", str(EXAMPLES / "shop_test.js")], {"NODE_PATH": modules}


def go_test() -> tuple[list[str], dict[str, str]]:
    return [str(go_own_test(MODULE, KAFKA_GO, EXAMPLES / "shop_test.go"))], {}


@pytest.mark.parametrize("made", [java_test, node_test, go_test])
def test_a_test_in_another_language_starts_a_cluster_by_a_command(
    made: Callable[[], tuple[list[str], dict[str, str]]],
) -> None:
    try:
        command, environment = made()
    except MissingError as error:
        pytest.skip(str(error))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env={**os.environ, **environment, "PATH": path, "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert made is not java_test or done.stdout == "order 42: paid\n"
