"""franz-go's own tests: the client whole, and once more its copying from topic to topic by members that
come and go, in groups and transactions, while every connection dies after a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.trials.judges.artifacts import FRANZ_GO, go_sources, go_test
from tests.trials.judges.case import Case, Judge

MODULE: Final = "github.com/twmb/franz-go"
RECORDS: Final = 20_000
LEAVES_OUT: Final = {
    "^TestShareGroup": "there are no share groups (decisions/0070)",
    "^(TestConsumeRegex|Test848RegexBrokerResolves)$": "there is no topic __consumer_offsets",
    "^TestPooling$": "it counts decompressed batches; they are served uncompressed",
    "^TestConsumeMaxDecompressBatchBytes$": "it looks for a compressed batch; they are served uncompressed",
}


def whole_suite(case: Case) -> str:
    passed = _tests(case, ["-test.skip", "|".join(LEAVES_OUT)], {})
    return (
        f"{passed} tests and subtests with {RECORDS:,} records pass, {len(LEAVES_OUT)} are left out"
    )


def with_broken_connections(case: Case) -> str:
    """Its own chaos. Rarely a subtest of KIP-848 fails with REBALANCE_IN_PROGRESS: franz-go's own answer
    for partitions that went to another member while it repeated their commit."""
    passed = _tests(case, ["-test.run", "^(TestTxnEtl|TestGroupETL)$"], {"KGO_TEST_CHAOS": "1"})
    return f"TestTxnEtl, TestGroupETL with {RECORDS:,} records: {passed} tests and subtests pass"


def _tests(case: Case, chosen: Sequence[str], more: dict[str, str]) -> int:
    program = go_test(MODULE, FRANZ_GO, f"{MODULE}/pkg/kgo")
    said = case.run(
        "tests",
        [str(program), *chosen, "-test.v", "-test.timeout", "25m"],
        environment={
            "KGO_SEEDS": case.server.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
            **more,
        },
        folder=go_sources(MODULE, FRANZ_GO) / "pkg/kgo",
    )
    return said.count("--- PASS")


JUDGES: Final = [
    Judge("franz-go", FRANZ_GO, whole_suite),
    Judge("franz-go under chaos", FRANZ_GO, with_broken_connections),
]
