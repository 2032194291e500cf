"""Access control for administrators: ACLs (kafka-acls.sh), and users with their passwords (kafka-configs.sh
--entity-type users)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.broker.core import Core, E
from eosdb.coordinator import authorizer, users
from eosdb.coordinator.authorizer import CLUSTER, Source, applies_to, check_acl
from eosdb.errors import ResourceNotFoundError, UnacceptableCredentialError
from eosdb.events.kinds import (
    Acl,
    AclAdded,
    AclRemoved,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from eosdb.model.protocol import scram
from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.validation import check_text, check_texts
from eosdb.store.store import Store

ANY: Final = "any"
MATCH: Final = "match"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs (Kafka: AclBindingFilter); a field that is None matches all values."""

    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str = ANY
    """`literal`, `prefixed`, ANY (any type with exactly this name), or MATCH (all patterns that match this
    name)."""
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


def create_acls(core: Core, acls: Iterable[Acl]) -> None:
    """Add ACLs; once there is one, everything that no ACL allows is denied. Raises
    InvalidRequestError for an operation or resource type unknown to Kafka."""
    checked = [check_acl(acl) for acl in acls]

    def added(source: Source, now_ms: int) -> Iterator[AclAdded]:
        existing = set(authorizer.load(source))
        return (AclAdded(now_ms, acl) for acl in checked if acl not in existing)

    _change(core, added)


def list_acls(core: Core) -> list[Acl]:
    """Return all ACLs, sorted. Raises ClusterAuthorizationFailedError."""
    with core.reading("describe", "cluster", CLUSTER) as connection:
        return sorted(authorizer.load(connection))


def delete_acls(core: Core, matches: Callable[[Acl], bool]) -> list[Acl]:
    """Delete the ACLs that `matches` selects, and return them."""

    def removed(source: Source, now_ms: int) -> Iterator[AclRemoved]:
        return (AclRemoved(now_ms, acl) for acl in sorted(filter(matches, authorizer.load(source))))

    return [event.acl for event in _change(core, removed)]


def set_password(
    core: Core, user: str, password: str, mechanisms: Sequence[str] = tuple(scram.MECHANISMS)
) -> None:
    """Add a user or change a password. Only salted keys of the password are stored. Raises
    UnacceptableCredentialError and UnsupportedSaslMechanismError."""
    users.check_user(user)
    if not check_text("password", password, UnacceptableCredentialError):
        raise UnacceptableCredentialError("password: got an empty one, expected some text")
    credentials = []
    for mechanism in map(users.check_mechanism, check_texts("mechanisms", mechanisms)):
        salt = secrets.token_bytes(scram.SALT_BYTES)
        salted = scram.salted_password(mechanism, password, salt, scram.ITERATIONS_MAX)
        credentials.append(scram.credential(user, mechanism, scram.ITERATIONS_MAX, salt, salted))
    _change(core, lambda _, now_ms: [ScramCredentialSet(now_ms, it) for it in credentials])


def put_credential(core: Core, credential: ScramCredential) -> None:
    """Add a user or change a password, with the client's keys for the password. Raises
    UnacceptableCredentialError and UnsupportedSaslMechanismError."""
    checked = users.check_credential(credential)
    _change(core, lambda _, now_ms: [ScramCredentialSet(now_ms, checked)])


def remove_user(core: Core, user: str, mechanism: str | None = None) -> None:
    """Delete the user's passwords, or the one for one mechanism. Open connections stay open. Raises
    ResourceNotFoundError if there is none."""
    users.check_user(user)
    if mechanism is not None:
        users.check_mechanism(mechanism)

    def removed(source: Source, now_ms: int) -> Iterator[ScramCredentialRemoved]:
        credentials = [
            c for c in users.load(source) if c.user == user and mechanism in (None, c.mechanism)
        ]
        if not credentials:
            raise ResourceNotFoundError(
                f"no password is stored for {user!r}"
                + (f" and {mechanism}" if mechanism else "")
                + "; see `eosdb users list`"
            )
        return (ScramCredentialRemoved(now_ms, c.user, c.mechanism) for c in credentials)

    _change(core, removed)


def list_credentials(core: Core) -> list[ScramCredential]:
    """Return the credentials of all users, ordered by name and mechanism."""
    with core.reading("describe", "cluster", CLUSTER) as connection:
        return users.load(connection)


def _change(core: Core, decide: Callable[[Source, int], Iterable[E]]) -> list[E]:
    """Record the events that `decide` returns for this time, if the principal may alter the cluster."""

    def checked(source: Source) -> Iterable[E]:
        core.authorizer.check(source, "alter", "cluster", CLUSTER)
        return decide(source, core.clock.time_ms())

    return core.change(checked)


def credential(store: Store, user: str, mechanism: str) -> ScramCredential | None:
    """A user's credential. No ACL is checked: a server authenticates clients first."""
    with store.read() as connection:
        return users.find(connection, user, mechanism)
