"""Tests that clients bring along for themselves, before a served file: kafka-go's and librdkafka's. What is
left out is named, with its reason."""

from __future__ import annotations

import re
from typing import Final

from tests.trials.judges.artifacts import go_sources, go_test, librdkafka_tests
from tests.trials.judges.case import Case, Judge, tail
from tests.trials.judges.verdicts import FailedError

KAFKA_GO: Final = "v0.4.51"
MODULE: Final = "github.com/segmentio/kafka-go"
KAFKA_GO_PORT: Final = 9092
KAFKA_GO_LEAVES_OUT: Final = {
    "TestUnsupportedSASLMechanism": "it asks a second broker; so before Kafka",
    "TestWriter/writing_a_message_with_SASL": "it asks a second broker; so before Kafka",
    "TestReaderConsumerGroup/(verify_offset|consumer_group_commits)": "its nil pointer; so before Kafka",
    "TestReaderConsumerGroup/consumer_group_rebalance$": "12 of a partition's 8 records; so before Kafka",
    "TestClientAlterClientQuotas": "there are no quotas (decisions/0066)",
    "TestReaderReadCompactedMessage": "segment.bytes=200 is too small for Kafka 4, too",
    "TestConn/test_delete_topics": "asking for a deleted topic makes it anew, with its partitions at once",
    "TestConn/read_a_batch_with_no_explicit_min": "max_bytes 0 gets a record, not the batch that was sent",
}
NODE_RDKAFKA: Final = "3.6.1"
"""Its package has the sources of librdkafka 2.12.0."""
LIBRDKAFKA_TESTS: Final = (
    1, 2, 3, 5, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 26, 29, 30, 31, 33, 34, 35,
    36, 38, 39, 40, 41, 42, 44, 45, 48, 49, 50, 51, 54, 55, 56, 57, 59, 60, 61, 63, 64, 65, 67, 68,
    69, 70, 73, 75, 83, 84, 85, 86, 88, 89, 90, 91, 93, 94, 99, 102, 112, 113, 114, 122, 123,
    125, 127, 130, 132, 137, 140,
)  # fmt: skip
"""Left out are those that start Kafka's own commands (KAFKA_PATH), want three replicas, or ask no broker;
0081, which sets a setting of the broker (decisions/0066); and 0118, which wants both members in the first
rebalance, or the right one first: so before Kafka without its `group.initial.rebalance.delay.ms`."""


def kafka_go(case: Case) -> str:
    program = go_test(MODULE, KAFKA_GO, MODULE)
    said = case.run(
        "tests",
        [
            str(program),
            "-test.v",
            "-test.timeout",
            "15m",
            "-test.skip",
            "|".join(KAFKA_GO_LEAVES_OUT),
        ],
        environment={"KAFKA_VERSION": "4.1.0", "KAFKA_SKIP_NETTEST": "1"},
        folder=go_sources(MODULE, KAFKA_GO),
    )
    return (
        f"{said.count('--- PASS')} tests and subtests pass, {len(KAFKA_GO_LEAVES_OUT)} are left out"
    )


def librdkafka(case: Case) -> str:
    folder = librdkafka_tests(NODE_RDKAFKA)
    settings = case.folder / "test.conf"
    settings.write_text(f"metadata.broker.list={case.server.bootstrap}\n")
    said = case.run(
        "tests",
        ["./test-runner", "-L", "-Q", "-p2"],
        environment={
            "TESTS": ",".join(f"{it:04}" for it in LIBRDKAFKA_TESTS),
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_KAFKA_VERSION": "4.1.0",
            "LD_LIBRARY_PATH": f"{folder.parent}/src:{folder.parent}/src-cpp",
        },
        folder=folder,
    )
    passed = {int(it) for it in re.findall(r"(?m)^\W+(?:\d+m)? ?(\d{4})_\w+ +\| +PASSED", said)}
    if missing := set(LIBRDKAFKA_TESTS) - passed:
        raise FailedError(f"{sorted(missing)} do not pass: {tail(case.log('tests'))}")
    return f"all of the {len(LIBRDKAFKA_TESTS)} tests that a single broker can pass"


_OPTIONS: Final = (
    "--config",
    "auto.create.topics.enable=true",
    "--config",
    "super.users=User:ANONYMOUS",
)
JUDGES: Final = [
    Judge(
        "kafka-go's tests", KAFKA_GO, kafka_go,
        ("--advertised", f"localhost:{KAFKA_GO_PORT}", *_OPTIONS), KAFKA_GO_PORT,
    ),
    Judge("librdkafka's tests", "2.12.0", librdkafka, (*_OPTIONS, "--config", "num.partitions=4")),
]  # fmt: skip
