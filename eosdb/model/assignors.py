"""The assignors of consumer groups, as pure functions over values.

Topics are names for the leader of a classic group, ids for the coordinator of a KIP-848 group. `range`
gives each subscriber consecutive partitions of a topic, and `roundrobin` deals the partitions in turn.
`uniform`, also used for the sticky assignors, makes the members' numbers of partitions as equal as possible
with the fewest moves (decisions/0080).
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Generic, TypeVar

T = TypeVar("T", int, str)
"""A topic: its number or its name."""
Assignment = dict[str, frozenset[tuple[T, int]]]
"""The partitions of each member, by member id; every member has an entry."""
Audience = frozenset[str]
"""The members that subscribe to a topic. Partitions with the same audience are interchangeable."""


@dataclass(frozen=True, slots=True)
class Subscriber(Generic[T]):
    """A group member: its subscribed topics, and its current partitions (`held`)."""

    member_id: str
    topics: Collection[T]
    held: frozenset[tuple[T, int]] = frozenset()
    group_instance_id: str | None = None


def assign_ranges(subscribers: Collection[Subscriber[T]], topics: Mapping[T, int]) -> Assignment[T]:
    """Give each subscriber consecutive partitions of each topic. `topics` has the number of partitions; if
    it does not divide evenly, the first members get one more (RangeAssignor)."""
    in_order = _in_order(subscribers)
    given: dict[str, set[tuple[T, int]]] = {one.member_id: set() for one in in_order}
    for topic, count in topics.items():
        audience = [one.member_id for one in in_order if topic in one.topics]
        start = 0
        for place, member_id in enumerate(audience):
            size = count // len(audience) + (place < count % len(audience))
            given[member_id].update((topic, start + i) for i in range(size))
            start += size
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def assign_round_robin(
    subscribers: Collection[Subscriber[T]], topics: Mapping[T, int]
) -> Assignment[T]:
    """Give one partition after the other to the topic's next subscriber in turn (RoundRobinAssignor)."""
    given: dict[str, set[tuple[T, int]]] = {one.member_id: set() for one in subscribers}
    wanted = {topic for one in subscribers for topic in one.topics}
    turns = cycle(_in_order(subscribers))
    for topic in sorted(wanted & topics.keys()):
        for number in range(topics[topic]):
            taker = next(one for one in turns if topic in one.topics)
            given[taker.member_id].add((topic, number))
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _in_order(subscribers: Iterable[Subscriber[T]]) -> list[Subscriber[T]]:
    """Sort members by instance id, else by member id: a restarted static member keeps its place."""
    return sorted(
        subscribers,
        key=lambda one: (one.group_instance_id is None, one.group_instance_id or one.member_id),
    )


def assign_uniformly(
    subscribers: Collection[Subscriber[T]], topics: Mapping[T, int]
) -> Assignment[T]:
    """Keep the members' partitions, give free ones to members with the fewest, then even them out."""
    sharing = _Sharing(subscribers, topics)
    sharing.give_out()
    sharing.level()
    return sharing.result()


class _Sharing(Generic[T]):
    """An unfinished assignment: each member's partitions, by the audience of their topics."""

    def __init__(self, subscribers: Collection[Subscriber[T]], topics: Mapping[T, int]) -> None:
        members: defaultdict[T, set[str]] = defaultdict(set)
        for one in subscribers:
            for topic in one.topics:
                members[topic].add(one.member_id)
        self._audiences: dict[T, Audience] = {
            topic: frozenset(members[topic]) for topic in topics if members[topic]
        }
        self._held: dict[str, defaultdict[Audience, set[tuple[T, int]]]] = {
            one.member_id: defaultdict(set) for one in subscribers
        }
        self._load = dict.fromkeys(self._held, 0)
        self._before: dict[str, frozenset[tuple[T, int]]] = {
            one.member_id: one.held for one in subscribers
        }
        self._free: set[tuple[T, int]] = {
            (topic, partition) for topic in self._audiences for partition in range(topics[topic])
        }
        for member_id, held in self._before.items():
            for partition in held & self._free:
                if member_id in self._audiences[partition[0]]:
                    self._give(member_id, partition)

    def give_out(self) -> None:
        """Give each free partition to the member of its audience with the fewest partitions. Small
        audiences come first, since they have the least choice."""
        by_audience: defaultdict[Audience, list[tuple[T, int]]] = defaultdict(list)
        for partition in sorted(self._free):
            by_audience[self._audiences[partition[0]]].append(partition)
        for audience in sorted(by_audience, key=lambda members: (len(members), sorted(members))):
            heap = [(self._load[member_id], member_id) for member_id in audience]
            heapq.heapify(heap)
            for partition in by_audience[audience]:
                load, member_id = heap[0]
                self._give(member_id, partition)
                heapq.heapreplace(heap, (load + 1, member_id))
        assert not self._free, self._free

    def level(self) -> None:
        """Move partitions from members with more to members with fewer, perhaps through other members,
        until no move makes the numbers more equal."""
        levelled: set[str] = set()
        while waiting := self._load.keys() - levelled:
            heaviest = max(waiting, key=lambda member_id: (self._load[member_id], member_id))
            chain = self._chain_to_lighter(heaviest)
            for giver, audience, taker in chain:
                count = self._surplus(giver, audience, taker) if len(chain) == 1 else 1
                self._pass_on(giver, audience, taker, count)
            levelled = set() if chain else {*levelled, heaviest}

    def result(self) -> Assignment[T]:
        return {
            member_id: frozenset().union(*held.values()) for member_id, held in self._held.items()
        }

    def _give(self, member_id: str, partition: tuple[T, int]) -> None:
        audience = self._audiences[partition[0]]
        assert member_id in audience, member_id
        self._held[member_id][audience].add(partition)
        self._load[member_id] += 1
        self._free.discard(partition)

    def _surplus(self, giver: str, audience: Audience, taker: str) -> int:
        """Return how many partitions can move at once before one of the two members reaches the mean of the
        audience; at least 1."""
        total = sum(self._load[member_id] for member_id in audience)
        above = self._load[giver] - -(-total // len(audience))
        below = total // len(audience) - self._load[taker]
        return max(1, min(above, below, len(self._held[giver][audience])))

    def _pass_on(self, giver: str, audience: Audience, taker: str, count: int) -> None:
        """Move partitions: first those that the taker had before, then those that are new to the giver."""
        held, before = self._held[giver][audience], self._before
        by_preference = (held & before[taker], held - before[giver] - before[taker], held)
        chosen = dict.fromkeys(one for some in by_preference for one in sorted(some, reverse=True))
        assert 0 < count <= len(chosen), count
        for partition in islice(chosen, count):
            held.remove(partition)
            self._load[giver] -= 1
            self._give(taker, partition)

    def _chain_to_lighter(self, heaviest: str) -> list[tuple[str, Audience, str]]:
        """Return the shortest chain of moves from `heaviest` to the member with the fewest partitions: each
        takes one from the previous member. Empty unless the last has at least two fewer."""
        came_from: dict[str, tuple[str, Audience] | None] = {heaviest: None}
        queue, best = deque([heaviest]), heaviest
        while queue:
            giver = queue.popleft()
            for audience, partitions in self._held[giver].items():
                if not partitions:
                    continue
                for taker in sorted(audience - came_from.keys()):
                    came_from[taker] = (giver, audience)
                    queue.append(taker)
                    if self._load[taker] < self._load[best]:
                        best = taker
        if self._load[best] > self._load[heaviest] - 2:
            return []
        chain, taker = list[tuple[str, Audience, str]](), best
        while (link := came_from[taker]) is not None:
            giver, audience = link
            chain.append((giver, audience, taker))
            taker = giver
        return chain
