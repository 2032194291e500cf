"""Consume, process, produce with clients of other languages, and with what is built upon clients: kafkajs,
Sarama, Quix Streams, FastStream, Camel, Spring Kafka. The server is killed meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.tidy.tree import ROOT
from tests.trials.judges.artifacts import (
    QUICK,
    QUIET,
    Jar,
    class_path,
    go_own_test,
    go_program,
    java,
    logging_jar,
    node_with,
    python_with,
)
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.python_clients import PROGRAMS, compare_at_least_once, copied
from tests.trials.judges.suites import KAFKA_GO, MODULE

KAFKAJS: Final = "2.2.4"
SARAMA: Final = "v1.61.1"
QUIX: Final = "3.28.1"
FASTSTREAM: Final = "0.7.8"
CAMEL: Final = "4.22.0"
SPRING: Final = "4.0.0"


def with_kafkajs(case: Case) -> str:
    node, modules = node_with("kafkajs", f"kafkajs@{KAFKAJS}")
    program = [node, str(PROGRAMS / "kafkajs_etl.js")]
    return copied(case, [program], {"NODE_PATH": modules, "KAFKAJS_NO_PARTITIONER_WARNING": "1"})


def with_sarama(case: Case) -> str:
    return copied(
        case, [[str(go_program("github.com/IBM/sarama", SARAMA, PROGRAMS / "sarama_etl.go"))]]
    )


def with_quix(case: Case) -> str:
    program = [python_with("quix", f"quixstreams=={QUIX}"), str(PROGRAMS / "quix_etl.py")]
    return copied(case, [program, program])


def with_faststream(client: str) -> Callable[[Case], str]:
    """FastStream has no transactions (its issue 2512), so it copies at least once, record by record."""

    def ask(case: Case) -> str:
        packages = [f"faststream[{it}]=={FASTSTREAM}" for it in ("kafka", "confluent")]
        program = [python_with("faststream", *packages), str(PROGRAMS / "faststream_etl.py")]
        return copied(
            case, [program] * 2, more=[[client]] * 2, deaths=(750, 1_750, 2_750, 3_500),
            kills=(500, 1_500, 2_500), records=4_000, compared=compare_at_least_once,
        )  # fmt: skip

    return ask


def with_camel(*more: str) -> Callable[[Case], str]:
    """Camel's transactions have no offsets (its pull request 26557), so it copies at least once, record by
    record."""

    def ask(case: Case) -> str:
        jars = [Jar("org.apache.camel", it, CAMEL) for it in ("camel-main", "camel-kafka")]
        path = class_path("camel", [*jars, Jar("org.slf4j", "slf4j-simple", "2.0.18")])
        program = [java(), "-Xmx256m", *QUICK, *QUIET, "-cp", path, str(PROGRAMS / "CamelEtl.java")]
        size = 2 if more else 1  # A transaction of one record takes two offsets.
        return copied(
            case, [program], more=[more], deaths=[it * size for it in (600, 1_200, 1_800, 2_400)],
            kills=[it * size for it in (400, 1_500, 2_700)], records=3_000,
            compared=compare_at_least_once,
        )  # fmt: skip

    return ask


def with_spring(case: Case) -> str:
    jars = class_path(
        "spring", [Jar("org.springframework.kafka", "spring-kafka", SPRING), logging_jar()]
    )
    program = [java(), "-Xmx256m", *QUIET, "-cp", jars, str(PROGRAMS / "SpringEtl.java")]
    return copied(case, [program, program])


def examples_of_tests(case: Case) -> str:
    """Tests that start a cluster of their own by `eosdb serve --memory --print-address`."""
    folder = ROOT / "examples/kafka_tests"
    node, modules = node_with("kafkajs", f"kafkajs@{KAFKAJS}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {"PATH": path, "NODE_PATH": modules, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    case.run("node", [node, "--test", str(folder / "shop_test.js")], environment=quiet)
    program = go_own_test(MODULE, KAFKA_GO, folder / "shop_test.go")
    case.run("go", [str(program)], environment={"PATH": path})
    return "the examples for Node and Go pass"


JUDGES: Final = [
    Judge("tests in Node and Go", KAFKA_GO, examples_of_tests),
    Judge("kafkajs", KAFKAJS, with_kafkajs),
    Judge("sarama", SARAMA, with_sarama),
    Judge("quix streams", QUIX, with_quix),
    Judge("faststream with aiokafka", FASTSTREAM, with_faststream("kafka")),
    Judge("faststream with confluent-kafka", FASTSTREAM, with_faststream("confluent")),
    Judge("camel", CAMEL, with_camel()),
    Judge("camel transacted", CAMEL, with_camel("transacted")),
    Judge("spring kafka", SPRING, with_spring),
]
