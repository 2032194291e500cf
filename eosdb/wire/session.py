"""What a handler works with: the connection's broker, who is at its other end, and where to wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kafka.protocol.admin.acl import ACLOperation

from eosdb.admin.topics import Admin
from eosdb.broker.broker import Broker
from eosdb.broker.handler import Core
from eosdb.wire.limits import Lease, Limits
from eosdb.wire.login import Login
from eosdb.wire.parking import ParkingPlace

NODE_ID: Final = 1
"""A file is a cluster of one broker."""
LEADER_EPOCH: Final = 0
"""The leader never changes."""
NO_TOPIC: Final = UUID(int=0)
"""The id that stands for none; messages are decoded with None in its place."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name for whoever has not said who it is."""

_NOT_ASKED: Final = 31
"""The bit that alone makes the least number, which stands for no answer."""


@dataclass(slots=True)
class Session:
    """One connection. `broker` and `admin` answer for whoever is at its other end."""

    broker: Broker
    admin: Admin
    core: Core
    login: Login
    parking: ParkingPlace
    limits: Limits
    lease: Lease
    """What the request takes of the memory that all connections share."""
    cluster_id: str
    host: str
    port: int
    """Where this connection has reached the server, so that the client can come again."""
    client_host: str
    client_id: str = ""
    """As the request being answered has it."""
    principal: str = ANONYMOUS

    def become(self, principal: str) -> None:
        """From here on it is this one who asks."""
        self.broker, self.admin = asking(self.core, principal)
        self.principal = principal

    def may(self, operation: str, kind: str, name: str) -> bool:
        """Whether the principal may do it; for what is no request of the broker's."""
        return operation in self.broker.authorized_operations(kind, name)

    def operations(self, asked: bool, kind: str, name: str) -> set[int]:
        """What the principal may do with a resource, with Kafka's codes (KIP-430), as bits of a field."""
        if not asked:
            return {_NOT_ASKED}
        found = self.broker.authorized_operations(kind, name)
        if kind == "cluster" and "describe" not in found:
            return set()
        return {int(ACLOperation[operation.upper()]) for operation in found}


def asking(core: Core, principal: str) -> tuple[Broker, Admin]:
    """What answers for a principal."""
    its = replace(core, authorizer=core.authorizer.of(principal))
    return Broker(its), Admin(its)
