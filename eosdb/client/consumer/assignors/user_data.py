"""The user data that Kafka's sticky assignors exchange in JoinGroup: encoding and decoding.

Members of a group may run different Kafka clients, so their formats are read, and a format that they all
read is written (decisions/0029).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from eosdb.model.protocol.consumer_protocol import Reader, Subscription, encode_partitions

_GENERATION: Final = struct.Struct(">i")


def sticky_user_data(held: Subscription) -> bytes | None:
    """Encode the member's last assignment, which it has revoked in order to join (StickyAssignorUserData,
    version 1)."""
    if held.generation_id < 0:
        return None
    return encode_partitions(held.owned) + _GENERATION.pack(held.generation_id)


def cooperative_user_data(held: Subscription) -> bytes | None:
    """Encode only the generation; the owned partitions are in the subscription."""
    return None if held.generation_id < 0 else _GENERATION.pack(held.generation_id)


def sticky_claims(told: Subscription) -> Subscription:
    """Return the subscription with the partitions and generation claimed in its user data; with none if
    that cannot be decoded."""
    data = told.user_data or b""
    # kafka-python 3 begins with the version, all other clients with the partitions.
    for begin in (0, 2):
        try:
            reader = Reader(data[begin:])
            owned = reader.partitions()
            generation = reader.int32() if reader.left else -1  # Version 0 has none.
        except ValueError:
            continue
        return replace(told, owned=owned, generation_id=generation)
    return replace(told, owned=(), generation_id=-1)


def cooperative_claims(told: Subscription) -> Subscription:
    """Return the subscription with its generation, which in older versions of the subscription is only in
    the user data. librdkafka's user data has the format of `sticky`."""
    if told.generation_id >= 0 or not told.user_data:
        return told
    if len(told.user_data) == _GENERATION.size:
        return replace(told, generation_id=_GENERATION.unpack(told.user_data)[0])
    return replace(told, generation_id=sticky_claims(told).generation_id)
