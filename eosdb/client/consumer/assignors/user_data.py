"""What Kafka's sticky assignors tell each other beside the subscription, and what they make of it.

A member of the group may run another program's assignor of the same name: what that writes is read, and
what it reads is written (decisions/0029).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from eosdb.model.protocol.consumer_protocol import Reader, Subscription, encode_partitions

_GENERATION: Final = struct.Struct(">i")


def sticky_user_data(held: Subscription) -> bytes | None:
    """What the member had at last, though it gives it up to join (StickyAssignorUserData, version 1)."""
    if held.generation_id < 0:
        return None
    return encode_partitions(held.owned) + _GENERATION.pack(held.generation_id)


def cooperative_user_data(held: Subscription) -> bytes | None:
    """The generation alone, for the partitions are in the subscription."""
    return None if held.generation_id < 0 else _GENERATION.pack(held.generation_id)


def sticky_claims(told: Subscription) -> Subscription:
    """The subscription with what the user data claims; with nothing if it cannot be read."""
    data = told.user_data or b""
    # kafka-python 3 begins with the version, all others with the partitions.
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
    """The subscription; its generation is in the user data where its own version has none. There librdkafka
    has what `sticky` has."""
    if told.generation_id >= 0 or not told.user_data:
        return told
    if len(told.user_data) == _GENERATION.size:
        return replace(told, generation_id=_GENERATION.unpack(told.user_data)[0])
    return replace(told, generation_id=sticky_claims(told).generation_id)
