"""Access control for administrators: ACLs (kafka-acls.sh), and users with their passwords (kafka-configs.sh
--entity-type users)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.broker.core import RequestHandler
from eosdb.coordinator import authorizer, users
from eosdb.coordinator.authorizer import CLUSTER, applies_to, check_acl
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
from eosdb.store.writing.unit import Unit

ANY: Final = "any"
MATCH: Final = "match"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs (Kafka: AclBindingFilter); a field that is None matches all values."""

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


class AccessAdmin(RequestHandler):
    """The part of `Database.admin` for ACLs, and for users of servers that require SASL. ACLs refer to a
    user as User:NAME."""

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; once there is one, everything that no ACL allows is denied. Raises
        InvalidRequestError for an operation or resource type unknown to Kafka."""
        checked = [check_acl(acl) for acl in acls]

        def create(unit: Unit) -> None:
            self._authorizer.check(unit, "alter", "cluster", CLUSTER)
            existing = set(authorizer.load(unit))
            for acl in checked:
                if acl not in existing:
                    unit.record(AclAdded(timestamp=self._clock.time_ms(), acl=acl))

        self._coordinator.write(create)

    def list_acls(self) -> list[Acl]:
        """Return all ACLs, sorted. Raises ClusterAuthorizationFailedError."""
        with self._core.reading("describe", "cluster", CLUSTER) as connection:
            return sorted(authorizer.load(connection))

    def delete_acls(self, matches: Callable[[Acl], bool]) -> list[Acl]:
        """Delete the ACLs that `matches` selects, and return them."""

        def delete(unit: Unit) -> list[Acl]:
            self._authorizer.check(unit, "alter", "cluster", CLUSTER)
            removed = sorted(filter(matches, authorizer.load(unit)))
            for acl in removed:
                unit.record(AclRemoved(timestamp=self._clock.time_ms(), acl=acl))
            return removed

        return self._coordinator.write(delete)

    def set_password(
        self, user: str, password: str, mechanisms: Sequence[str] = tuple(scram.MECHANISMS)
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
            credentials.append(
                scram.credential(user, mechanism, scram.ITERATIONS_MAX, salt, salted)
            )
        self._put(credentials)

    def _put_credential(self, credential: ScramCredential) -> None:
        """Add a user or change a password, with the client's keys for the password. Raises
        UnacceptableCredentialError and UnsupportedSaslMechanismError."""
        self._put([users.check_credential(credential)])

    def remove_user(self, user: str, mechanism: str | None = None) -> None:
        """Delete the user's passwords, or the one for one mechanism. Open connections stay open. Raises
        ResourceNotFoundError if there is none."""
        users.check_user(user)
        if mechanism is not None:
            users.check_mechanism(mechanism)

        def remove(unit: Unit) -> None:
            self._authorizer.check(unit, "alter", "cluster", CLUSTER)
            credentials = [
                c for c in users.load(unit) if c.user == user and mechanism in (None, c.mechanism)
            ]
            if not credentials:
                raise ResourceNotFoundError(
                    f"no password is stored for {user!r}"
                    + (f" and {mechanism}" if mechanism else "")
                    + "; see `eosdb users list`"
                )
            for c in credentials:
                unit.record(ScramCredentialRemoved(self._clock.time_ms(), c.user, c.mechanism))

        self._coordinator.write(remove)

    def _list_credentials(self) -> list[ScramCredential]:
        """Return the credentials of all users, ordered by name and mechanism."""
        with self._core.reading("describe", "cluster", CLUSTER) as connection:
            return users.load(connection)

    def _put(self, credentials: Sequence[ScramCredential]) -> None:
        def put(unit: Unit) -> None:
            self._authorizer.check(unit, "alter", "cluster", CLUSTER)
            for credential in credentials:
                unit.record(ScramCredentialSet(self._clock.time_ms(), credential))

        self._coordinator.write(put)


def credential(store: Store, user: str, mechanism: str) -> ScramCredential | None:
    """A user's credential, for a server: it must authenticate a client before it can check its ACLs."""
    with store.read() as connection:
        return users.find(connection, user, mechanism)
