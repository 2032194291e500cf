"""Consume, process, produce with clients of other languages, and with what is built upon clients: kafkajs,
Sarama, Quix Streams, Spring Kafka. The server is killed meanwhile."""

from __future__ import annotations

from typing import Final

from tests.judges.artifacts import (
    QUIET,
    Jar,
    class_path,
    go_program,
    java,
    logging_jar,
    node_with,
    python_with,
)
from tests.judges.case import Case, Judge
from tests.judges.python_clients import PROGRAMS, copied

KAFKAJS: Final = "2.2.4"
SARAMA: Final = "v1.61.1"
QUIX: Final = "3.28.1"
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


def with_spring(case: Case) -> str:
    jars = class_path(
        "spring", [Jar("org.springframework.kafka", "spring-kafka", SPRING), logging_jar()]
    )
    program = [java(), "-Xmx256m", *QUIET, "-cp", jars, str(PROGRAMS / "SpringEtl.java")]
    return copied(case, [program, program])


JUDGES: Final = [
    Judge("kafkajs", KAFKAJS, with_kafkajs),
    Judge("sarama", SARAMA, with_sarama),
    Judge("quix streams", QUIX, with_quix),
    Judge("spring kafka", SPRING, with_spring),
]
