"""The position topic in the target: how far each partition of a source was relayed.

Positions are written in the transaction of the records before them, so either both are committed or
neither. The topic is compacted: the newest record of a key counts, and none expires, as group offsets
would. Each relay and source also has one claim: the run of the relay that wrote last, and a mark of the
source's history at that time. All records are readable JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from eosdb.errors import CorruptRecordError
from eosdb.integrations.relay.values import Outgoing, Position
from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition

# decisions/0045: not the offsets of a group, which expire.
POSITIONS_TOPIC: Final = "__eosdb_relay_positions"
POSITIONS_CONFIG: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Standing:
    """The target's state of a relay and a source. `run` and `mark` are empty before the first claim."""

    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    run: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Builds and parses the position records of one relay and one source."""

    relay: str
    source_id: str
    topic: str = POSITIONS_TOPIC

    def position(self, tp: TopicPartition, position: Position) -> Outgoing:
        value = {"offset": position.offset, "topic_id": position.topic_id}
        if position.target_id:
            value["target_id"] = position.target_id
        return self._record({"topic": tp.topic, "partition": tp.partition}, value)

    def claim(self, run: str, mark: str) -> Outgoing:
        return self._record({}, {"run": run, "mark": mark})

    def standing(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> Standing:
        """The state after all records of the topic, (key, value) in order. Raises CorruptRecordError for a
        record that no relay wrote."""
        positions: dict[TopicPartition, Position] = {}
        run = mark = ""
        for key, value in records:
            try:
                named = parsed(key or b"")
                if named["relay"] != self.relay or named["source"] != self.source_id:
                    continue
                if "topic" not in named:
                    said = parsed(value) if value else {}
                    run, mark = said.get("run", ""), said.get("mark", "")
                    continue
                tp = TopicPartition(named["topic"], int(named["partition"]))
                if value is None:
                    positions.pop(tp, None)
                else:
                    said = parsed(value)
                    positions[tp] = Position(
                        int(said["offset"]), str(said["topic_id"]), str(said.get("target_id", ""))
                    )
            except (ValueError, KeyError, TypeError, AttributeError):
                raise CorruptRecordError(
                    f"the topic {self.topic} has a record that no relay wrote: key {key!r:.200}, value "
                    f"{value!r:.200}; name another topic for positions, or delete that record's key"
                ) from None
        return Standing(positions, run, mark)

    def _record(self, of: Mapping[str, object], value: Mapping[str, object]) -> Outgoing:
        key = {"relay": self.relay, "source": self.source_id, **of}
        return Outgoing(self.topic, 0, None, _json(key), _json(value), ())


def transactional_id(relay: str, source_id: str) -> str:
    """A constant id, so that a restarted relay ends its predecessor's transaction, and fences the
    predecessor if it is alive."""
    return f"eosdb-relay:{relay}:{source_id}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
