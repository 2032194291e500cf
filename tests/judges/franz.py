"""franz-go's own tests of transactions and groups: records are copied from topic to topic by members that
come and go, and each is counted at the end."""

from __future__ import annotations

from typing import Final

from tests.judges.artifacts import FRANZ_GO, go_test
from tests.judges.case import Case, Judge

MODULE: Final = "github.com/twmb/franz-go"
RECORDS: Final = 20_000


def quietly(case: Case) -> str:
    return _etl(case, {})


def with_broken_connections(case: Case) -> str:
    """Its own chaos: every connection dies after a second at most."""
    return _etl(case, {"KGO_TEST_CHAOS": "1"})


def _etl(case: Case, more: dict[str, str]) -> str:
    program = go_test(MODULE, FRANZ_GO, f"{MODULE}/pkg/kgo")
    said = case.run(
        "tests",
        [
            str(program),
            "-test.run",
            "^(TestTxnEtl|TestGroupETL)$",
            "-test.v",
            "-test.timeout",
            "25m",
        ],
        environment={
            "KGO_SEEDS": case.server.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
            **more,
        },
    )
    passed = said.count("--- PASS")
    return f"TestTxnEtl, TestGroupETL with {RECORDS:,} records: {passed} tests and subtests pass"


JUDGES: Final = [
    Judge("franz-go", FRANZ_GO, quietly),
    Judge("franz-go under chaos", FRANZ_GO, with_broken_connections),
]
