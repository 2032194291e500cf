"""What a handler works with: the connection's broker, who is at its other end, and where to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eosdb.admin.topics import Admin
from eosdb.broker.broker import Broker
from eosdb.wire.limits import Lease, Limits
from eosdb.wire.parking import ParkingPlace

NODE_ID: Final = 1
"""A file is a cluster of one broker."""
LEADER_EPOCH: Final = 0
"""The leader never changes."""


@dataclass(slots=True)
class Session:
    """One connection, or one principal on it. `broker` and `admin` answer for that principal."""

    broker: Broker
    admin: Admin
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
    principal: str = "User:ANONYMOUS"
