"""Every check, in the order of the sheet."""

from __future__ import annotations

from typing import Final

from tests.conformance import (
    call_checks,
    fencing_checks,
    offset_checks,
    reading_checks,
    restart_checks,
    sequence_checks,
    timeout_checks,
)
from tests.conformance.check import Check

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for module in (
        reading_checks,
        fencing_checks,
        timeout_checks,
        offset_checks,
        call_checks,
        sequence_checks,
        restart_checks,
    )
    for check in module.SUBJECT.checks
)
