"""`eosdb why`: why groups and partitions make no progress, and the commands that help."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple

import click

import eosdb
from eosdb import Diagnosis, GroupPartition, GroupState, OpenTransaction, TopicPartition, Worry
from eosdb.cli import options, output
from eosdb.cli.commands.groups import guessing
from eosdb.cli.file_command import FileCommand, Session
from eosdb.model.clock import format_time_ms
from eosdb.model.overview import Behind, GroupFigures
from eosdb.model.words import counted, duration

_COLUMNS = (
    "Topic", "Partition", "LogStartOffset", "LastStableOffset", "LogEndOffset", "TransactionalId",
    "ProducerId", "ProducerEpoch", "TransactionState", "StartOffset", "StartTimeMs", "AbortTimeMs",
    "Hanging", "WaitingCommitted", "WaitingOpen", "Group", "CurrentOffset", "Lag", "HeldBack",
    "Skipped", "Command",
)  # fmt: skip
_OF_WORRIES = ("Group", "Topic", "Partition", "Sentence", "Command", "Urgent")


@click.command(cls=FileCommand)
@options.partition_argument(required=False, whole_topic=True)
@click.option("--group", help="Only this group; with a topic, also its committed offsets.")
@output.format_option
def why(session: Session, where: TopicPartition | None, group: str | None) -> None:
    """List the problems in a file, most urgent first, each with the command that solves it: transactions
    that hold back readers, groups without members or progress, late scheduled records, dead letters, relays
    without progress, a file that cannot be written, a program that holds the write lock.

    With TOPIC, show each partition, or one: its last stable offset, the transaction that holds it back, and
    the records behind it. If one group alone reads it, its position is shown, too.

    \b
    Example:
      eosdb why shop.db
      eosdb why shop.db orders/0 --group billing
    """
    with session.open(read_only=True) as db:
        if where is None:
            if group is not None:
                with guessing(db, group):
                    db.admin.describe_group_offsets(group)
            worries = [one for one in db.why() if group in (None, one.group)]
            if not output.is_format("table"):
                output.rows(_OF_WORRIES, map(astuple, worries))
                return
            for line in _list(worries):
                output.line(line)
            if group is None:
                output.line(_rest(db, worries))
            elif not worries:
                output.line(f"No problems of group {group}.")
            return
        wanted = [where]
        if where.partition < 0:
            count = len(db.admin.describe_topic(where.topic).partitions)
            wanted = [TopicPartition(where.topic, number) for number in range(count)]
        readers: Sequence[GroupFigures] = ()
        if group is None:
            readers = _readers(db, wanted)
            if len(readers) == 1:
                group, readers = readers[0].group_id, ()
        diagnoses = [db.admin.diagnose(tp, group) for tp in wanted]
        if not output.is_format("table"):
            _print_figures(diagnoses, group)
            return
        for line in _screen(diagnoses, group, readers, whole_topic=where.partition < 0):
            output.line(line)


def _list(worries: Iterable[Worry]) -> Iterator[str]:
    for number, worry in enumerate(worries, 1):
        yield f"{number}. {worry.sentence}"
        yield f"   {worry.command}"


def _rest(db: eosdb.Database, worries: Sequence[Worry]) -> str:
    """A sentence about the groups and partitions without a problem."""
    it = db.admin.overview()
    groups = len({group.group_id for group in it.groups} - {worry.group for worry in worries})
    held = {holder.topic_partition for holder in it.holders()}
    free = counted(len(it.partitions) - len(held), "partition")
    begin = "All else is well" if worries else "No problems"
    return f"{begin}: {counted(groups, 'group')} with nothing left to read, {free} that nothing holds back."


def _readers(db: eosdb.Database, wanted: Sequence[TopicPartition]) -> list[GroupFigures]:
    """The groups that read one of the partitions."""
    return [
        group
        for group in db.admin.overview().groups
        if any((at.topic, at.partition) in wanted for at in group.positions)
    ]


def _screen(
    diagnoses: list[Diagnosis],
    group: str | None,
    readers: Sequence[GroupFigures],
    *,
    whole_topic: bool,
) -> Iterator[str]:
    """A paragraph for each partition; for a whole topic, one covers those with nothing to report."""
    quiet = [why for why in diagnoses if _is_quiet(why, readers)] if whole_topic else []
    listed = [why for why in diagnoses if why not in quiet]
    for number, why in enumerate(listed):
        if number:
            yield ""
        yield from _lines(why, group, readers)
    if quiet:
        if listed:
            yield ""
        numbers = ", ".join(str(why.partition) for why in quiet)
        is_read = any(why.group is not None or _standing(why, readers) for why in quiet)
        yield (
            f"{quiet[0].topic}: nothing holds back partition{'s' * (len(quiet) > 1)} {numbers}, and "
            + ("its readers have read everything" if is_read else "no group reads it")
        )


def _is_quiet(why: Diagnosis, readers: Sequence[GroupFigures]) -> bool:
    if why.holder is not None or any(lag for _, lag in _standing(why, readers)):
        return False
    return why.group is None or (why.group.lag == 0 and not why.group.pending)


def _standing(why: Diagnosis, readers: Sequence[GroupFigures]) -> list[tuple[GroupFigures, Behind]]:
    """The groups that read the partition, and the lag of each."""
    return [
        (reader, position.behind)
        for reader in readers
        for position in reader.positions
        if (position.topic, position.partition) == (why.topic, why.partition)
    ]


def _lines(why: Diagnosis, group: str | None, readers: Sequence[GroupFigures]) -> Iterator[str]:
    offsets = why.offsets
    yield (
        f"{why.topic}/{why.partition}: readable up to offset {offsets.last_stable_offset} (the last "
        f"stable offset), the log ends at {offsets.log_end_offset}"
    )
    if why.holder is None:
        yield "  No open transaction holds it back."
    else:
        yield from _holder_lines(why, why.holder)
    for reader, behind in _standing(why, readers):
        if behind:
            yield (
                f"  Group {reader.group_id} has {'' if behind.is_exact else 'at most '}"
                f"{counted(behind, 'record')} left to read; it is {reader.state} with "
                f"{counted(reader.members, 'member')} (--group {reader.group_id} shows more)"
            )
            yield from (f"  {due}" for due in reader.due)
    if group is not None:
        yield from _group_lines(why, group)


def _holder_lines(why: Diagnosis, holder: OpenTransaction) -> Iterator[str]:
    who = holder.transactional_id
    yield (
        f"  Held by {'an unknown transactional id' if who is None else f'transactional id {who}'}, "
        f"producer id {holder.producer_id}, epoch {holder.producer_epoch}; at the coordinator: "
        f"{holder.state or 'nothing known'}"
    )
    yield (
        f"  It began at offset {holder.start_offset}, {duration(why.now_ms - holder.start_time_ms)} ago "
        f"({format_time_ms(holder.start_time_ms)})"
    )
    yield (
        f"  Waiting behind it: {counted(why.waiting_committed, 'committed record')} and "
        f"{counted(why.waiting_open, 'record')} of open transactions"
    )
    if why.others_open:
        are = "is" if why.others_open == 1 else "are"
        yield f"  {counted(why.others_open, 'more transaction')} {are} open behind it"
    if holder.due:
        yield f"  {holder.due}"
    elif holder.hanging is not None:
        yield f"  It will not be aborted by itself: {holder.hanging.value}"
    else:
        left = duration(holder.deadline_ms - why.now_ms)
        yield (
            f"  It will be aborted by itself in {left} ({format_time_ms(holder.deadline_ms)}), if it "
            "has not ended before"
        )
    yield f"  To end it now: {_command(why)}"


def _group_lines(why: Diagnosis, group: str) -> Iterator[str]:
    standing = why.group
    if standing is None or standing.committed_offset < 0:
        position = (
            "is not known"
            if why.group_state == GroupState.DEAD.value
            else "has committed nothing here"
        )
        yield f"  Group {group} {position}; it begins where auto_offset_reset says"
    else:
        yield from _standing_lines(why, standing)
    if standing is not None and standing.pending:
        yield (
            f"  Some of its offsets are held by open transactions ({', '.join(standing.pending)}): its "
            "readers wait for them"
        )
    if why.group_state not in (None, GroupState.DEAD.value):
        reader = standing.member_id if standing is not None else None
        yield (
            f"  The group is {why.group_state}; "
            + (f"{reader} reads this partition" if reader else "nobody reads this partition")
        )
        yield from (f"  {due}" for due in why.group_due)


def _standing_lines(why: Diagnosis, standing: GroupPartition) -> Iterator[str]:
    lag = standing.lag
    assert lag is not None
    yield (
        f"  Group {standing.group_id} stands at offset {standing.committed_offset}: "
        f"{counted(lag.readable, 'record')} to read now, {lag.held_back} held back"
        + (f"; {lag.skipped} more offsets are markers or aborted data" if lag.skipped else "")
    )
    if standing.committed_offset < why.offsets.log_start_offset:
        yield (
            f"  Its next records were deleted: the log begins at {why.offsets.log_start_offset}; "
            "auto_offset_reset decides where it continues"
        )
    elif standing.committed_offset > why.offsets.log_end_offset:
        yield "  It stands beyond the end of the log; auto_offset_reset decides where it continues"


def _command(why: Diagnosis) -> str:
    holder = why.holder
    if holder is None:
        return ""
    session = click.get_current_context().obj
    file = f" --db {shlex.quote(session.path)}" if session.is_named else ""
    return (
        f"eosdb{file} transactions abort {why.topic}/{why.partition} "
        f"--start-offset {holder.start_offset}"
    )


def _print_figures(diagnoses: Iterable[Diagnosis], group: str | None) -> None:
    output.listing(
        _COLUMNS,
        diagnoses,
        log_start_offset="offsets.log_start_offset",
        last_stable_offset="offsets.last_stable_offset",
        log_end_offset="offsets.log_end_offset",
        transactional_id="holder.transactional_id",
        producer_id="holder.producer_id",
        producer_epoch="holder.producer_epoch",
        transaction_state="holder.state",
        start_offset="holder.start_offset",
        start_time_ms="holder.start_time_ms",
        abort_time_ms=lambda it: _or_none(it.holder and it.holder.deadline_ms),
        hanging="holder.hanging.value",
        group=lambda _: group,
        current_offset=lambda it: _or_none(it.group and it.group.committed_offset),
        lag="group.lag.readable",
        held_back="group.lag.held_back",
        skipped="group.lag.skipped",
        command=lambda it: _command(it) or None,
    )


def _or_none(number: int | None) -> int | None:
    return None if number is None or number < 0 else number
