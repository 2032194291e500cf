"""A check: a title, the rule of Kafka it comes from, and a function that asks a double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance.double import Double

Ask = Callable[[Double], None]


@dataclass(frozen=True, slots=True)
class Check:
    """`ask` returns when the double does what Kafka does, and raises when it does not."""

    name: str
    title: str
    rule: str
    ask: Ask


@dataclass(frozen=True, slots=True)
class Subject:
    """The checks of one module, in the order in which they stand there."""

    checks: list[Check] = field(default_factory=list)

    def check(self, title: str, rule: str) -> Callable[[Ask], Ask]:
        def keep(ask: Ask) -> Ask:
            self.checks.append(Check(ask.__name__, title, rule, ask))
            return ask

        return keep
