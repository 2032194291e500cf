"""Sticky assignment for members with different subscriptions: as balanced as these allow.

Owned partitions stay, and free partitions go to the member with the fewest. Then partitions move one by one
as long as that improves the balance; if it has not improved in the end, all moves are undone
(GeneralAssignmentBuilder).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.values import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""Every member's partitions, by member id; an empty list for a member that gets none."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member of the group and its subscription: the input of an assignor."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


def all_partitions(topics: Iterable[str], partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of the topics, in the topics' order."""
    return [TopicPartition(topic, p) for topic in topics for p in range(partitions[topic])]


def assign_unequal(
    members: Sequence[MemberSubscription], owned: Assignment, partitions: Mapping[str, int]
) -> Assignment:
    """Compute the assignment. `owned` holds the members' valid claims; it is modified."""
    return _Balancing(members, owned, partitions).run()


class _Balancing:
    """An assignment in progress."""

    def __init__(
        self,
        members: Sequence[MemberSubscription],
        owned: Assignment,
        partitions: Mapping[str, int],
    ) -> None:
        self._partitions = partitions
        self._topics = {
            member.member_id: {t for t in member.subscription.topics if t in partitions}
            for member in members
        }
        self._subscribers = {
            topic: [m.member_id for m in members if topic in self._topics[m.member_id]]
            for topic in partitions
        }
        self._before = _earlier_owners(members)
        self._assigned = owned
        self._must_revoke = False
        for member_id, tps in owned.items():
            kept = [tp for tp in tps if tp.topic in self._topics[member_id]]
            self._must_revoke |= len(kept) < len(tps)
            owned[member_id] = kept
        self._owner = {tp: member_id for member_id, tps in owned.items() for tp in tps}
        self._owned_topics = {m: Counter(tp.topic for tp in tps) for m, tps in owned.items()}
        self._by_size = sorted((len(tps), member_id) for member_id, tps in owned.items())
        self._moves = _Moves()

    def run(self) -> Assignment:
        topics = sorted(self._partitions, key=lambda topic: (len(self._subscribers[topic]), topic))
        everything = all_partitions(topics, self._partitions)
        free = [tp for tp in everything if tp not in self._owner]
        is_first = self._by_size[-1][0] == 0
        for tp in free:
            taker = next(m for _, m in self._by_size if tp.topic in self._topics[m])
            self._give(tp, taker)
        fixed = {m: tps for m, tps in self._assigned.items() if not self._can_change(m)}
        for member_id, tps in fixed.items():
            self._by_size.remove((len(tps), member_id))
            del self._assigned[member_id]
        before = {member_id: list(tps) for member_id, tps in self._assigned.items()}
        if not self._must_revoke:
            self._even_out([tp for tp in free if self._is_shared(tp.topic)])
        has_moved = self._even_out([tp for tp in everything if self._is_shared(tp.topic)])
        after = self._assigned
        if has_moved and not is_first and _unevenness(after) >= _unevenness(before):
            after = before
        return {**after, **fixed}

    def _even_out(self, tps: Sequence[TopicPartition]) -> bool:
        """Move partitions until no move improves the balance. Returns whether any did."""
        has_moved = False
        while True:
            moved = False
            for tp in tps:
                if self._is_balanced():
                    break
                moved |= self._improve(tp)
            has_moved |= moved
            if not moved:
                return has_moved

    def _improve(self, tp: TopicPartition) -> bool:
        """Move the partition, or another of its topic in its place (`_Moves.actual`), if its owner has too
        many. Returns whether a partition moved."""
        size = len(self._assigned[self._owner[tp]])
        earlier = self._before.get(tp)
        if (
            earlier is not None
            and earlier in self._subscribers[tp.topic]
            and size > len(self._assigned[earlier]) + 1
        ):
            self._move(tp, earlier)
            return True
        if any(size > len(self._assigned[other]) + 1 for other in self._subscribers[tp.topic]):
            self._move(tp, next(m for _, m in self._by_size if tp.topic in self._topics[m]))
            return True
        return False

    def _is_balanced(self) -> bool:
        """Whether no member could take a partition from one that has at least two more."""
        if self._by_size[0][0] >= self._by_size[-1][0] - 1:
            return True
        largest: Counter[str] = Counter()
        for size, member_id in self._by_size:
            for topic in self._owned_topics[member_id]:
                largest[topic] = max(largest[topic], size)
        return not any(
            size + 1 < largest[topic]
            for size, member_id in self._by_size
            for topic in self._topics[member_id]
        )

    def _is_shared(self, topic: str) -> bool:
        return len(self._subscribers[topic]) >= 2

    def _can_change(self, member_id: str) -> bool:
        tps = self._assigned[member_id]
        possible = sum(self._partitions[topic] for topic in self._topics[member_id])
        return len(tps) < possible or any(self._is_shared(tp.topic) for tp in tps)

    def _move(self, tp: TopicPartition, taker: str) -> None:
        tp = self._moves.actual(tp, self._owner[tp], taker)
        giver = self._owner[tp]
        self._moves.note(tp, giver, taker)
        self._resize(giver, -1)
        self._assigned[giver].remove(tp)
        self._owned_topics[giver] -= Counter([tp.topic])
        self._give(tp, taker)

    def _give(self, tp: TopicPartition, taker: str) -> None:
        self._resize(taker, 1)
        self._assigned[taker].append(tp)
        self._owned_topics[taker][tp.topic] += 1
        self._owner[tp] = taker

    def _resize(self, member_id: str, by: int) -> None:
        size = len(self._assigned[member_id])
        del self._by_size[bisect_left(self._by_size, (size, member_id))]
        insort(self._by_size, (size + by, member_id))


class _Moves:
    """The moves made so far, so that two members do not swap partitions of one topic."""

    def __init__(self) -> None:
        self._way: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: defaultdict[tuple[str, str, str], set[TopicPartition]] = defaultdict(set)

    def actual(self, tp: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move instead of `tp`: one that moved in the opposite direction before, if
        there is any."""
        if tp in self._way:
            giver = self._way[tp][0]
        back = self._moved[tp.topic, taker, giver]
        return min(back) if back else tp

    def note(self, tp: TopicPartition, giver: str, taker: str) -> None:
        """Record a move; a move back to the first owner cancels the earlier ones."""
        earlier = self._way.pop(tp, None)
        if earlier is not None:
            self._moved[tp.topic, *earlier].discard(tp)
            giver = earlier[0]
        if giver != taker:
            self._way[tp] = (giver, taker)
            self._moved[tp.topic, giver, taker].add(tp)


def _earlier_owners(members: Sequence[MemberSubscription]) -> dict[TopicPartition, str]:
    """Return each partition's owner in the newest generation before the current one."""
    newest = max(member.subscription.generation_id for member in members)
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member in members:
        generation = member.subscription.generation_id
        if generation == newest:
            continue
        for tp in member.subscription.owned:
            if tp not in owners or generation > owners[tp][0]:
                owners[tp] = (generation, member.member_id)
    return {tp: member_id for tp, (_, member_id) in owners.items()}


def _unevenness(assignment: Assignment) -> int:
    """Sum the differences in size between all pairs of members."""
    sizes = (len(tps) for tps in assignment.values())
    return sum(abs(a - b) for a, b in combinations(sizes, 2))
