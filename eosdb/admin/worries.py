"""Finds the problems of a file and the commands that solve them, the most urgent first. Pure.

`db.why()`, `eosdb why FILE`, `eosdb top`, the page and the pytest fixture all show these sentences.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from eosdb.model.answers import Tabular
from eosdb.model.overview import GroupFigures, GroupPosition, Overview
from eosdb.model.reports import OpenTransaction
from eosdb.model.values import RELAY_GROUPS, PartitionOffsets, TopicPartition
from eosdb.model.words import counted, duration, printable, shortened, size

YOUNG_MS: Final = 10_000
"""An open transaction is urgent from this age on (ms); a scheduled record is a worry from this delay on."""
ROOM_MIN: Final = 32 << 20
"""With less free space than this (bytes), the file system is full to a writer."""
WAL_MAX: Final = 256 << 20
"""A reader that keeps a WAL of this size (bytes) from shrinking is a worry."""
_NAME_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Worry(Tabular):
    """A problem in words, and a command. The command solves the problem; if only a program can, it shows
    details.

    `group`, `topic` and `partition` locate the problem; None if it concerns none. `is_urgent` is False for
    problems that programs usually end soon, such as a young transaction.
    """

    group: str | None
    topic: str | None
    partition: int | None
    sentence: str
    command: str
    is_urgent: bool = True


Run = Callable[..., str]
"""Builds the text of a command from its name and the words after FILE."""


def worries(it: Overview, file: str | None = None) -> list[Worry]:
    """Return the worries, most urgent first. `file` is the path that the commands name."""

    def run(name: str, *words: object) -> str:
        return shlex.join(["eosdb", *name.split(), file or it.path, *map(str, words)])

    parts = (_of_file, _of_transactions, _of_groups, _of_scheduled, _of_dead_letters, _of_moves)
    found = [worry for part in parts for worry in part(it, run)]
    return sorted(found, key=lambda worry: not worry.is_urgent)


def _of_file(it: Overview, run: Run) -> Iterator[Worry]:
    path = _name(it.path)
    if it.is_read_only:
        sentence = f"Every write fails, because {path} or its file system is read-only."
        yield Worry(None, None, None, sentence, shlex.join(["ls", "-l", it.path]))
    if it.write_held_by:
        holder = printable(it.write_held_by)
        sentence = (
            f"The write lock of {path} is held by {holder}. No other program can write, for half a second "
            "or longer; the system does not tell since when."
        )
        found = re.search(r"process (\d+)", holder)
        command = shlex.join(["ps", "-f", "-p", found[1]]) if found else run("info")
        yield Worry(None, None, None, sentence, command)
    if 0 <= it.disk_free_bytes < ROOM_MIN:
        sentence = f"The file system of {path} is full: {size(it.disk_free_bytes)} are free."
        folder = str(PurePath(it.path).parent)
        yield Worry(None, None, None, sentence, shlex.join(["df", "-h", folder]))
    if it.wal_bytes >= WAL_MAX and it.wal_held_by:
        sentence = (
            f"The WAL has {size(it.wal_bytes)} and cannot shrink while these read an old snapshot: "
            f"{printable(it.wal_held_by)}."
        )
        yield Worry(None, None, None, sentence, run("info"))


def _of_transactions(it: Overview, run: Run) -> Iterator[Worry]:
    """One worry for each transaction that holds back readers, hanging transactions first."""
    offsets = {one.topic_partition: one.offsets for one in it.partitions}
    together: defaultdict[tuple[object, ...], list[OpenTransaction]] = defaultdict(list)
    for one in it.holders():
        # A marker ends a hanging transaction in one partition; an abort ends others in all partitions.
        ends_alone = one.hanging is not None and not one.due
        alone = (one.topic_partition, one.start_offset) if ends_alone else ()
        together[one.producer_id, one.producer_epoch, *alone].append(one)

    def behind(one: OpenTransaction) -> int:
        return offsets[one.topic_partition].log_end_offset - one.start_offset

    held = [sorted(parts, key=behind, reverse=True) for parts in together.values()]
    held.sort(key=lambda parts: (parts[0].hanging is None, -sum(map(behind, parts))))
    for parts in held:
        one = parts[0]
        who = f"Transaction {_name(one.transactional_id or '')}"
        if one.transactional_id is None:
            who = f"A transaction of producer id {one.producer_id}"
        age_ms = max(it.now_ms - one.start_time_ms, 0)
        start = "--start-offset", one.start_offset
        command = run("transactions abort", f"{one.topic}/{one.partition}", *start)
        if one.due:
            how, command = one.due, run("housekeeping")
        elif one.hanging is not None:
            how = f"Nothing ends it: {one.hanging.value}"
        else:
            how = f"It is aborted in {duration(one.deadline_ms - it.now_ms)} unless it ends before"
        where = f"{_where(part.topic_partition for part in parts)} from offset {one.start_offset:,}"
        waiting = counted(sum(map(behind, parts)), "offset")
        for_how_long = f"for {duration(age_ms)}, {waiting} by now"
        sentence = f"{who} has held back readers of {where} {for_how_long}. {how}."
        is_urgent = one.hanging is not None or age_ms >= YOUNG_MS
        yield Worry(None, one.topic, one.partition, sentence, command, is_urgent)


def _of_groups(it: Overview, run: Run) -> Iterator[Worry]:
    offsets = {one.topic_partition: one.offsets for one in it.partitions}
    found: list[tuple[int, int, Worry]] = []
    for group in it.groups:
        for at in group.positions:
            if gone := _outside(at, offsets[_partition(at)]):
                sentence, target = f"Group {_name(group.group_id)} {gone[0]}", gone[1]
                place = "--topic", f"{at.topic}:{at.partition}"
                command = run("groups reset-offsets", group.group_id, *place, target, "--execute")
                worry = Worry(group.group_id, at.topic, at.partition, sentence, command)
                found.append((0, -at.behind, worry))
        behind = sorted((at for at in group.positions if at.behind), key=lambda at: -at.behind)
        if behind or group.due or group.failed_ms >= 0:
            rank, worry = _of_group(group, behind, it.now_ms, run)
            found.append((rank, -group.behind, worry))
    return (worry for *_, worry in sorted(found, key=lambda one: one[:2]))


def _outside(at: GroupPosition, log: PartitionOffsets) -> tuple[str, str] | None:
    """A sentence about a position outside of the log, and the option that resets it into the log."""
    where, then = _where([_partition(at)]), "auto_offset_reset decides where it goes on."
    if 0 <= at.committed_offset < log.log_start_offset:
        return (
            f"has not read offset {at.committed_offset:,} of {where}, which is deleted: the log begins "
            f"at {log.log_start_offset:,}. {then}"
        ), "--to-earliest"
    if at.committed_offset > log.log_end_offset:
        return (
            f"stands at offset {at.committed_offset:,} of {where}, beyond the log's end, "
            f"{log.log_end_offset:,}. {then}"
        ), "--to-latest"
    return None


def _of_group(
    group: GroupFigures, behind: Sequence[GroupPosition], now_ms: int, run: Run
) -> tuple[int, Worry]:
    """The most urgent worry about a group, and its rank among the worries about groups."""
    at = next((one for one in behind if one.still_since_ms >= 0), behind[0] if behind else None)
    still = "" if at is None or at.still_since_ms < 0 else duration(now_ms - at.still_since_ms)
    lag = f"{'' if group.behind.is_exact else 'at most '}{counted(group.behind, 'record')} to read"
    if behind:
        lag += f" in {_where(map(_partition, behind))}"
    name, members = f"Group {_name(group.group_id)}", counted(group.members, "member")
    command, words = "groups describe", [group.group_id]
    if group.group_id.startswith(RELAY_GROUPS):
        own = group.group_id.removeprefix(RELAY_GROUPS)
        command, words = "relay", ["--name", own, "--to", "TARGET"]
        rank, sentence = 5, f"Relay {_name(own)} has {lag}."
        if still:
            rank = 3
            sentence += (
                f" It has copied nothing for {still}: it was stopped, or the other side is down."
            )
    elif group.due:
        rank, command, words = 1, "housekeeping", []
        dead, left = counted(len(group.due), "dead member"), members
        sentence = f"{name} has {lag}. The next write to the file removes {dead} and leaves {left}."
        if not group.members:
            sentence += " Start its program again."
    elif not group.members:
        rank, sentence = 3, f"{name} has no member and {lag}. Start its program again."
        if group.failed_ms >= 0:
            ago = duration(now_ms - group.failed_ms)
            rank = 2 if behind else 5
            sentence = (
                f"{name} has no member and {lag}. Its processor stopped without a commit {ago} ago. See "
                "its log, correct what failed, and start it again."
            )
    elif still and at is not None:
        rank, words = 4, [group.group_id, "--members"]
        sentence = (
            f"{name} has {members} and {lag}. {_where([_partition(at)])} has stood still for {still}: the "
            "member there hangs, or commits nothing."
        )
    else:
        rank = 5
        sentence = f"{name} has {members} and {lag}. No partition has stood still for a minute yet."
    topic, partition = (None, None) if at is None else (at.topic, at.partition)
    return rank, Worry(group.group_id, topic, partition, sentence, run(command, *words), rank < 5)


def _of_scheduled(it: Overview, run: Run) -> Iterator[Worry]:
    for one in sorted(it.scheduled, key=lambda scheduled: scheduled.first_due_ms):
        late_ms = it.now_ms - one.first_due_ms
        if one.overdue and late_ms >= YOUNG_MS:
            sentence = (
                f"{counted(one.overdue, 'scheduled record')} of {_name(one.topic)} should have entered "
                f"the topic, the first {duration(late_ms)} ago. No program writes to the file, polls it, "
                "serves it or keeps house."
            )
            yield Worry(None, one.topic, None, sentence, run("housekeeping"))


def _of_dead_letters(it: Overview, run: Run) -> Iterator[Worry]:
    for one in sorted(it.dead_letters, key=lambda letters: -letters.waiting):
        if one.waiting:
            ago = duration(max(it.now_ms - one.newest_timestamp, 0))
            sentence = (
                f"{_name(one.topic)} holds {counted(one.waiting, 'dead letter')}, the newest for {ago}. "
                "Correct what made them fail, and replay them."
            )
            yield Worry(None, one.topic, None, sentence, run("dlq replay", one.topic))


def _of_moves(it: Overview, run: Run) -> Iterator[Worry]:
    for topic, address, is_done in it.closed_topics:
        state = "has moved" if is_done else "is moving"
        sentence = f"Topic {_name(topic)} refuses writers, because it {state} to {_name(address)}."
        how = "--undo" if is_done else "--execute"
        command = run("migrate-to-kafka", "--to", address, how)
        yield Worry(None, topic, None, sentence, command, is_urgent=not is_done)


def _name(text: str) -> str:
    return shortened(printable(text), _NAME_MAX)


def _partition(at: GroupPosition) -> TopicPartition:
    return TopicPartition(at.topic, at.partition)


def _where(places: Iterable[TopicPartition]) -> str:
    """Text such as `orders/0 and 2 more partitions`; empty for no partitions."""
    first, *others = [f"{_name(tp.topic)}/{tp.partition}" for tp in places] or [""]
    return f"{first} and {counted(len(others), 'more partition')}" if others else first
