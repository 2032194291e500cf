"""Selects ACLs (Kafka: AclBindingFilter)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eosdb.coordinator.authorizer import applies_to
from eosdb.events.kinds import Acl

ANY: Final = "any"
MATCH: Final = "match"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs; a field that is None matches all values."""

    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str = ANY
    """`literal`, `prefixed`, ANY (either type with exactly this name), or MATCH (all that apply to a
    resource of this name)."""
    principal: str | None = None
    operation: str | None = None
    permission: str | None = None

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects this ACL."""
        given = (self.resource_type, self.principal, self.operation, self.permission)
        there = (acl.resource_type, acl.principal, acl.operation, acl.permission)
        if any(one not in (None, other) for one, other in zip(given, there, strict=True)):
            return False
        if self.pattern_type == MATCH:
            return self.resource_name is None or applies_to(acl, self.resource_name)
        return self.pattern_type in (ANY, acl.pattern_type) and (
            self.resource_name in (None, acl.resource_name)
        )
