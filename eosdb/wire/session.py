"""The context of a handler: the connection's broker, its principal, and its waiting requests."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kafka.protocol.admin.acl import ACLOperation

from eosdb.admin.admin import Admin
from eosdb.broker.broker import Broker
from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.errors import ClusterAuthorizationFailedError
from eosdb.model import requests
from eosdb.wire.limits import Lease, Limits
from eosdb.wire.login import Login
from eosdb.wire.parking import Look, Parking

NODE_ID: Final = 1
"""The node id of the broker: a file is a cluster of one."""
NO_TOPIC: Final = UUID(int=0)
"""The null topic id; kafka-python decodes it as None."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name for an unauthenticated client."""

_NOT_ASKED: Final = 31
"""The only bit of the answer if operations were not requested, which makes it the lowest int32."""


@dataclass(slots=True)
class Session:
    """The state of a connection. `broker` and `admin` act on behalf of its principal."""

    broker: Broker
    admin: Admin
    core: Core
    login: Login
    parking: Parking
    client: socket.socket
    limits: Limits
    lease: Lease
    """The memory that the connection holds for the request."""
    cluster_id: str
    host: str
    port: int
    """The advertised address, or else the address at which the client has reached the server."""
    client_host: str
    client_id: str = ""
    """The client id of the request being handled."""
    principal: str = ANONYMOUS
    idle: tuple[object, Look] | None = None
    """The end offsets in the answer to the last Fetch, and the condition that one of them has moved."""
    is_advertised: bool = False
    """Whether the advertised address applies whatever name the client asks for (SNI)."""

    def step(self, token: bytes) -> bytes:
        """Handle a message of the login's mechanism; after the last one its user is the principal. Raises
        SaslAuthenticationFailedError."""
        answer = self.login.step(token)
        if self.login.user is not None:
            self.principal = f"User:{self.login.user}"
            self.broker, self.admin = asking(self.core, self.principal)
        return answer

    def leader_epoch(self) -> int:
        """The epoch of every partition's leader, which only a copy or restore of the file changes."""
        return self.broker.ask(requests.LeaderEpochs()).current

    def may(self, operation: str, kind: str, name: str) -> bool:
        """Whether the principal may perform an operation that the broker does not check."""
        return operation in self.broker.ask(requests.AuthorizedOperations(kind, name))

    def check(self, operation: str) -> None:
        """Raises ClusterAuthorizationFailedError unless the principal may perform the operation on the
        cluster."""
        if not self.may(operation, "cluster", CLUSTER):
            raise ClusterAuthorizationFailedError(
                f"{self.principal} may not {operation} the cluster"
            )

    def features(self) -> dict[str, int]:
        """The cluster's features, each with its finalized level (KIP-584), which is the highest supported
        one. It depends on how the file was opened."""
        return {"group.version": 1, "transaction.version": self.broker.transaction_version}

    def operations(self, requested: bool, kind: str, name: str) -> set[int]:
        """The codes of the operations allowed to the principal on a resource (KIP-430)."""
        if not requested:
            return {_NOT_ASKED}
        allowed = self.broker.ask(requests.AuthorizedOperations(kind, name))
        if kind == "cluster" and "describe" not in allowed:
            return set()
        return {int(ACLOperation[operation.upper()]) for operation in allowed}


def asking(core: Core, principal: str) -> tuple[Broker, Admin]:
    its = replace(core, authorizer=core.authorizer.of(principal))
    return Broker(its), Admin(its)
