"""Authorization by access control lists (Kafka: StandardAuthorizer). Without any ACL everything is
allowed.

The broker decides which rights a request needs, and in which order they are checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from eosdb import errors
from eosdb.events.kinds import Acl
from eosdb.model.validation import check_name
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import TRANSACTIONS, Memo, Unit

OPERATIONS: Final = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write",
)  # fmt: skip
RESOURCE_TYPES: Final[dict[str, type[errors.ApiError]]] = {
    "topic": errors.TopicAuthorizationFailedError,
    "group": errors.GroupAuthorizationFailedError,
    "cluster": errors.ClusterAuthorizationFailedError,
    "transactional_id": errors.TransactionalIdAuthorizationFailedError,
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
"""The operations on a resource of each type."""
PATTERN_TYPES: Final = ("literal", "prefixed")
PERMISSIONS: Final = ("allow", "deny")
CLUSTER: Final = "kafka-cluster"
"""The only resource name of the type cluster, as in Kafka."""

Source = Unit | sqlite3.Connection
_IMPLY_DESCRIBE: Final = ("read", "write", "delete", "alter")


def check_acl(acl: Acl) -> Acl:
    """The ACL in its stored form. Raises InvalidRequestError for values that Kafka does not have."""
    stored = Acl(
        check_name("principal", acl.principal),
        _one_of("operation", acl.operation, OPERATIONS),
        _one_of("resource_type", acl.resource_type, tuple(RESOURCE_TYPES)),
        check_name("resource_name", acl.resource_name),
        _one_of("pattern_type", acl.pattern_type, PATTERN_TYPES),
        _one_of("permission", acl.permission, PERMISSIONS),
    )
    if stored.resource_type == "cluster" and stored.resource_name not in (CLUSTER, "*"):
        raise errors.InvalidRequestError(
            f"resource_name: got {stored.resource_name!r}, expected {CLUSTER}, the only cluster"
        )
    if not stored.resource_name:
        raise errors.InvalidRequestError("resource_name: got '', expected a name, or * for all")
    if ":" not in stored.principal:
        raise errors.InvalidRequestError(
            f"principal: got {stored.principal!r}, expected TYPE:NAME such as User:alice"
        )
    return stored


def allowed(
    acls: Iterable[Acl], principal: str, operation: str, resource_type: str, name: str | None
) -> bool:
    """Whether the ACLs allow the operation on the resource; a denial takes precedence. If `name` is None:
    whether they allow it on at least one resource of the type (KIP-679)."""
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
    """Checks the rights of one principal, by the ACLs that a unit or a reader's snapshot sees."""

    def __init__(self, principal: str, super_users: str = "") -> None:
        self.principal: Final = principal
        self._super_users = super_users
        self._unstoppable = principal in super_users.split(";")

    def of(self, principal: str) -> Authorizer:
        return Authorizer(principal, self._super_users)

    def check(self, source: Source, operation: str, resource_type: str, name: str) -> None:
        """Raise the …AuthorizationFailedError of the resource type unless the operation is allowed."""
        if not self.allows(source, operation, resource_type, name):
            raise RESOURCE_TYPES[resource_type](
                f"{self.principal} may not {operation} the {resource_type} {name!r}; add an ACL that "
                "allows it"
            )

    def allows(self, source: Source, operation: str, resource_type: str, name: str | None) -> bool:
        """Whether the operation is allowed; without any ACL everything is. `name` as in `allowed`."""
        acls = () if self._unstoppable else load(source)
        return not acls or allowed(acls, self.principal, operation, resource_type, name)

    def describes(self, source: Source, operation: str = "describe") -> Callable[[str, str], bool]:
        """Return a function that tells, for a resource type and name, whether the principal may describe
        the resource, or do another operation. The ACLs are read once, for answers about many resources."""
        acls = () if self._unstoppable else load(source)

        @cache
        def answer(resource_type: str, name: str) -> bool:
            return not acls or allowed(acls, self.principal, operation, resource_type, name)

        return answer

    def operations(self, source: Source, resource_type: str, name: str) -> frozenset[str]:
        """The operations allowed on the resource (KIP-430). Raises InvalidRequestError."""
        kind = _one_of("resource_type", resource_type, tuple(SUPPORTED))
        return frozenset(
            operation for operation in SUPPORTED[kind] if self.allows(source, operation, kind, name)
        )

    def check_create_topic(self, source: Source, name: str) -> None:
        """Require CREATE on the cluster or on the topic."""
        if not self.allows(source, "create", "cluster", CLUSTER):
            self.check(source, "create", "topic", name)

    def check_idempotent_write(self, source: Source) -> None:
        """Require IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
        text = "idempotent_write on the cluster, or write on any topic"
        self._check_any(
            source, text, ("idempotent_write", "cluster", CLUSTER), ("write", "topic", None)
        )

    def check_write_markers(self, source: Source) -> None:
        """Require ALTER (for administrators) or CLUSTER_ACTION (for brokers) on the cluster."""
        ways = ("alter", "cluster", CLUSTER), ("cluster_action", "cluster", CLUSTER)
        self._check_any(source, "alter or cluster_action on the cluster", *ways)

    def _check_any(self, source: Source, text: str, *ways: tuple[str, str, str | None]) -> None:
        if not any(self.allows(source, *way) for way in ways):
            raise errors.ClusterAuthorizationFailedError(
                f"{self.principal} needs {text}; add an ACL that allows one of them"
            )


@dataclass(slots=True)
class AclMemo(Memo):
    rules: tuple[Acl, ...] | None = None
    """None if not read yet."""
    survives = TRANSACTIONS


def load(source: Source) -> tuple[Acl, ...]:
    """All ACLs; a unit caches them in its memo."""
    memo = source.memos[AclMemo] if isinstance(source, Unit) else AclMemo()
    if memo.rules is None:
        memo.rules = tuple(ACLS.read(source, ACLS.select))
    return memo.rules


ACLS: Final = TableOf("acls", Acl._fields, " ".join(Acl._fields), Acl._make)


def applies_to(acl: Acl, name: str) -> bool:
    if acl.pattern_type == "prefixed":
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def _takes_back(denial: Acl, acl: Acl) -> bool:
    """Whether the denial covers every name that `acl` allows."""
    if acl.pattern_type == "prefixed" and denial.pattern_type != "prefixed":
        return denial.resource_name == "*"
    return applies_to(denial, acl.resource_name)


def _covers(acl: Acl, operation: str) -> bool:
    if acl.operation in (operation, "all"):
        return True
    return (
        operation == "describe" and acl.permission == "allow" and acl.operation in _IMPLY_DESCRIBE
    )


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    text = str(value).lower().replace("-", "_")
    if text not in choices:
        raise errors.InvalidRequestError(
            f"{name}: got {value!r}, expected one of {', '.join(choices)}"
        )
    return text
