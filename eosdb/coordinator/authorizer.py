"""Who may do what: access control rows, checked only when there are any (Kafka:
StandardAuthorizer).

The order of a request's checks is Kafka's and is kept in the broker; here is the one rule that answers
them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from eosdb.errors import (
    ApiError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from eosdb.events.kinds import Acl
from eosdb.model.validation import check_text
from eosdb.store.writing.unit import Memo, Unit

OPERATIONS: Final = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write",
)  # fmt: skip
RESOURCE_TYPES: Final[dict[str, type[ApiError]]] = {
    "topic": TopicAuthorizationFailedError,
    "group": GroupAuthorizationFailedError,
    "cluster": ClusterAuthorizationFailedError,
    "transactional_id": TransactionalIdAuthorizationFailedError,
}
SUPPORTED: Final = {
    "topic": (
        "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs",
    ),
    "group": ("read", "delete", "describe", "describe_configs", "alter_configs"),
    "cluster": (
        "create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs",
        "idempotent_write",
    ),
    "transactional_id": ("write", "describe"),
}  # fmt: skip
"""What can be done with a resource of each type."""
PATTERN_TYPES: Final = ("literal", "prefixed")
PERMISSIONS: Final = ("allow", "deny")
CLUSTER: Final = "kafka-cluster"
"""The one resource name of the type cluster, as in Kafka."""

Source = Unit | sqlite3.Connection
_IMPLY_DESCRIBE: Final = ("read", "write", "delete", "alter")


def check_acl(acl: Acl) -> Acl:
    """The row in its stored form. Raises InvalidRequestError for what Kafka does not know."""
    made = Acl(
        check_text("principal", acl.principal),
        _one_of("operation", acl.operation, OPERATIONS),
        _one_of("resource_type", acl.resource_type, tuple(RESOURCE_TYPES)),
        check_text("resource_name", acl.resource_name),
        _one_of("pattern_type", acl.pattern_type, PATTERN_TYPES),
        _one_of("permission", acl.permission, PERMISSIONS),
    )
    if made.resource_type == "cluster" and made.resource_name not in (CLUSTER, "*"):
        raise InvalidRequestError(
            f"resource_name: got {made.resource_name!r}, expected {CLUSTER}, the only cluster"
        )
    if not made.resource_name:
        raise InvalidRequestError("resource_name: got '', expected a name, or * for all")
    if ":" not in made.principal:
        raise InvalidRequestError(
            f"principal: got {made.principal!r}, expected TYPE:NAME such as User:alice"
        )
    return made


def allowed(
    acls: Iterable[Acl], principal: str, operation: str, resource_type: str, name: str | None
) -> bool:
    """Whether the rows let the principal do it; a denial wins. `name` None: on any resource, which is one
    that no denial covers as a whole (KIP-679)."""
    about = [
        acl
        for acl in acls
        if acl.principal in (principal, "User:*")
        and acl.resource_type == resource_type
        and (name is None or applies_to(acl, name))
        and _covers(acl, operation)
    ]
    denials = [acl for acl in about if acl.permission == "deny"]
    if name is not None and denials:
        return False
    return any(
        not any(_takes_back(denial, acl) for denial in denials)
        for acl in about
        if acl.permission == "allow"
    )


class Authorizer:
    """Answers for one principal, from the rows that a unit or a reader's snapshot sees."""

    def __init__(self, principal: str, super_users: str = "") -> None:
        self.principal: Final = principal
        self._super_users = super_users
        self._unstoppable = principal in super_users.split(";")

    def of(self, principal: str) -> Authorizer:
        """The same for another principal."""
        return Authorizer(principal, self._super_users)

    def check(self, source: Source, operation: str, resource_type: str, name: str) -> None:
        """Raises the resource type's …AuthorizationFailedError."""
        if not self.allows(source, operation, resource_type, name):
            raise RESOURCE_TYPES[resource_type](
                f"{self.principal} may not {operation} the {resource_type} {name!r}; add an ACL that "
                "allows it"
            )

    def allows(self, source: Source, operation: str, resource_type: str, name: str) -> bool:
        """Whether there are no rows at all: then everything is allowed."""
        acls = () if self._unstoppable else load(source)
        return not acls or allowed(acls, self.principal, operation, resource_type, name)

    def describes(self, source: Source) -> Callable[[str, str], bool]:
        """Tells of a resource's type and name whether the principal may describe it, from rows read once:
        for reports about many."""
        acls = () if self._unstoppable else load(source)

        @cache
        def answer(resource_type: str, name: str) -> bool:
            return not acls or allowed(acls, self.principal, "describe", resource_type, name)

        return answer

    def operations(self, source: Source, resource_type: str, name: str) -> frozenset[str]:
        """All that the principal may do with the resource (KIP-430). Raises InvalidRequestError."""
        kind = _one_of("resource_type", resource_type, tuple(SUPPORTED))
        return frozenset(
            operation for operation in SUPPORTED[kind] if self.allows(source, operation, kind, name)
        )

    def check_create_topic(self, source: Source, name: str) -> None:
        """CREATE on the cluster, or on the topic."""
        if not self.allows(source, "create", "cluster", CLUSTER):
            self.check(source, "create", "topic", name)

    def check_idempotent_write(self, source: Source) -> None:
        """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
        acls = () if self._unstoppable else load(source)
        if acls and not (
            allowed(acls, self.principal, "idempotent_write", "cluster", CLUSTER)
            or allowed(acls, self.principal, "write", "topic", None)
        ):
            raise ClusterAuthorizationFailedError(
                f"{self.principal} may neither idempotent_write the cluster nor write any topic; add "
                "an ACL that allows one of them"
            )

    def check_write_markers(self, source: Source) -> None:
        """ALTER on the cluster, which an administrator has, or CLUSTER_ACTION, which brokers have."""
        if not any(
            self.allows(source, operation, "cluster", CLUSTER)
            for operation in ("alter", "cluster_action")
        ):
            raise ClusterAuthorizationFailedError(
                f"{self.principal} may neither alter the cluster nor cluster_action it; add an ACL that "
                "allows one of them"
            )


@dataclass(slots=True)
class AclMemo(Memo):
    rules: tuple[Acl, ...] | None = None
    """None: not read yet."""


def load(source: Source) -> tuple[Acl, ...]:
    """The rows; a unit remembers them in its memo."""
    if not isinstance(source, Unit):
        return tuple(Acl(*row) for row in source.execute(SELECT))
    memo = source.memos[AclMemo]
    if memo.rules is None:
        memo.rules = tuple(Acl(*row) for row in source.execute(SELECT))
    return memo.rules


SELECT: Final = (
    "SELECT principal, operation, resource_type, resource_name, pattern_type, permission FROM acls"
)


def applies_to(acl: Acl, name: str) -> bool:
    """Whether the row is about a resource of this name."""
    if acl.pattern_type == "prefixed":
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def _takes_back(denial: Acl, acl: Acl) -> bool:
    """Whether every name that the row allows is denied."""
    if acl.pattern_type == "prefixed" and denial.pattern_type != "prefixed":
        return denial.resource_name == "*"
    return applies_to(denial, acl.resource_name)


def _covers(acl: Acl, operation: str) -> bool:
    if acl.operation in (operation, "all"):
        return True
    return (
        operation == "describe" and acl.permission == "allow" and acl.operation in _IMPLY_DESCRIBE
    )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    text = str(value).lower().replace("-", "_")
    if text not in known:
        raise InvalidRequestError(f"{name}: got {value!r}, expected one of {', '.join(known)}")
    return text
