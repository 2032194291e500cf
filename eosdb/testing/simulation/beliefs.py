"""Checks a group that changes between the two protocols.

No partition may be owned by two members whose commits pass. Members of a group that is classic again keep
their known generation.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition
from eosdb.testing.simulation.ledger import Ledger
from eosdb.testing.simulation.model import MEMBERS, assigned, require


class Beliefs:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.members: list[tuple[str, int]] = []
        """The members, each with the generation or epoch that its commits must name."""
        self._checked = -1
        self._epoch: int | None = None
        """The group's epoch while it uses the new protocol."""
        self.seen = 0
        """The journal position up to which changes have been read."""
        self.changes_over = 0
        self._had: dict[str, set[int]] = {}
        """The last assignment of each classic member."""
        self._targets: dict[str, set[int]] = {}
        """The coordinator's target for each member."""

    def take(self, members: Iterable[Mapping[str, Any]], generation: int) -> None:
        self.members = [(m["member_id"], m.get("member_epoch", generation)) for m in members]
        self._checked = -1

    def check(self) -> None:
        """Check every partition that a member ever owned in the generation in which its commits pass:
        such commits may still be in flight."""
        if self._checked == self._ledger.beliefs:
            return
        self._checked = self._ledger.beliefs
        owners: dict[TopicPartition, tuple[str, int]] = {}
        for member in self.members:
            for tp in sorted(self._ledger.believed.get(member, ())):
                other = owners.setdefault(tp, member)
                require(other == member, f"{tp} is believed owned by {other} and {member}")

    def add(self, changes: Iterable[tuple[int, str, str]]) -> None:
        """Follow the changes of protocol: position, kind and detail of each event of a group."""
        for position, kind, detail in changes:
            self.seen = position
            event = parsed(detail)
            if event["group_id"] != MEMBERS:
                continue
            if kind == "ConsumerGroupChanged":
                if self._epoch is None:
                    self._begin(event["members"])
                self._epoch = event["group_epoch"]
                for m in event["members"]:
                    self._targets[m["member_id"]] = _numbers(m["target"])
                continue
            before, self._epoch = self._epoch, None
            waits = not any(member["has_joined"] for member in event["members"])
            if before is not None and event["members"] and waits:
                now = event["generation_id"]
                require(now == before, f"a group of epoch {before} is one of generation {now}")
            if before is not None or event["state"] == "Stable":
                self._had = {
                    m["member_id"]: {
                        number for _, number in assigned(base64.b64decode(m["assignment"]))
                    }
                    for m in event["members"]
                }
            if before is not None and waits:
                for name, had in self._had.items():
                    meant = self._targets.get(name, had)
                    require(had == meant, f"{name} has {had} of {meant} when the group is classic")

    def _begin(self, members: Iterable[Mapping[str, Any]]) -> None:
        """Check that a group that changes its protocol keeps its classic members' last assignments."""
        self.changes_over += 1
        for member in members:
            has = _numbers([*member["assigned"], *member["pending_revocation"]])
            had = self._had.get(member["member_id"], set())
            lost = had - has if member["protocols"] else set()
            require(not lost, f"{member['member_id']} had {lost} when the group changed over")


def _numbers(shares: Iterable[Mapping[str, Any]]) -> set[int]:
    """The partitions of the one topic that the members share."""
    return {number for share in shares for number in share["partitions"]}
