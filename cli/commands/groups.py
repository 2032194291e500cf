"""`eosdb groups`: kafka-consumer-groups.sh, with its columns; lag is counted in records."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

import eosdb
from eosdb import GroupReport, TopicPartition
from eosdb.cli import options, output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import GroupIdNotFoundError, NonEmptyGroupError
from eosdb.model.config import guess


@click.group(cls=FileGroup)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command(name="list")
@click.option("--state", is_flag=True, help="Also show the state and type of each group.")
@output.format_option
def list_(session: Session, state: bool) -> None:
    """List all groups.

    \b
    Example:
      eosdb groups list shop.db --state
    """
    with session.open(read_only=True) as db:
        names = db.broker.list_groups()
        if state:
            groups = map(db.broker.describe_group, names)
            columns = ("GROUP", "STATE", "TYPE")
            output.listing(columns, groups, group="group_id", type="group_type.value")
        else:
            output.rows(("GROUP",), [(name,) for name in names])


@groups.command()
@click.argument("group", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@click.option("--state", is_flag=True, help="Show the state instead of the offsets.")
@output.format_option
def describe(
    session: Session, group: tuple[str, ...], all_groups: bool, members: bool, state: bool
) -> None:
    """Describe GROUP: its committed offset in each partition.

    LAG counts the records that the group can read now. HELD-BACK counts records behind the last stable
    offset. SKIPPED counts offsets of markers and aborted data, which are not lag.

    A member whose session has ended or whose process has died is not shown. The next write to the file
    removes it; until then a line on standard error says so.

    \b
    Example:
      eosdb groups describe shop.db billing
    """
    if bool(group) == all_groups:
        raise click.UsageError("name at least one group, or give --all-groups")
    if members and state:
        raise click.UsageError("give --members or --state, not both")
    with session.open(read_only=True) as db:
        names = tuple(db.broker.list_groups()) if all_groups else group
        with guessing(db, *names):
            reports = [db.admin.describe_group_offsets(name) for name in names]
        if members:
            _show_members(db, reports)
        elif state:
            _show_state(db, reports)
        else:
            _show_offsets(reports)
    output.due((f"Consumer group '{one.group_id}'", due) for one in reports for due in one.due)


@contextlib.contextmanager
def guessing(db: eosdb.Database, *names: str) -> Iterator[None]:
    """Add a similar group to the error about the first of these that does not exist."""
    try:
        yield
    except GroupIdNotFoundError as error:
        known = db.broker.list_groups()
        hints = (guess(name, known) for name in names if name not in known)
        raise GroupIdNotFoundError(f"{error}{next(hints, '')}") from None


def _show_offsets(reports: list[GroupReport]) -> None:
    output.listing(
        (
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
            "HOST", "CLIENT-ID", "HELD-BACK", "SKIPPED",
        ),
        [standing for report in reports for standing in report.partitions],
        group="group_id",
        current_offset=lambda it: output.known(it.committed_offset, "-"),
        lag="lag.readable",
        consumer_id=lambda it: it.member_id or "-",
        host=lambda it: it.client_host or "-",
        client_id=lambda it: it.client_id or "-",
        held_back="lag.held_back",
        skipped="lag.skipped",
    )  # fmt: skip
    for report in reports:
        if report.members == 0 and output.is_format("table"):
            output.line(f"Consumer group '{report.group_id}' has no active members.", err=True)


def _show_members(db: eosdb.Database, reports: list[GroupReport]) -> None:
    rows: list[tuple[object, ...]] = []
    for report in reports:
        readers = Counter(p.member_id for p in report.partitions)
        rows += [
            (
                report.group_id, it.member_id, it.client_host or "-", it.client_id,
                readers[it.member_id], it.group_instance_id or "",
            )
            for it in db.broker.describe_group(report.group_id).members
        ]  # fmt: skip
    columns = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "GROUP-INSTANCE-ID")
    output.rows(columns, rows)


def _show_state(db: eosdb.Database, reports: list[GroupReport]) -> None:
    rows = []
    for report in reports:
        strategy = db.broker.describe_group(report.group_id).protocol_name or ""
        coordinator = db.broker.find_coordinator(report.group_id, "group").partition
        rows.append((report.group_id, coordinator, strategy, report.state, report.members))
    columns = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    output.rows(columns, rows)


_topics_option = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:P,P…]",
    help="Only this topic, or some of its partitions (repeatable).",
)  # fmt: skip


@groups.command("reset-offsets")
@click.argument("group")
@_topics_option
@click.option(
    "--all-topics", is_flag=True, help="All topics for which the group has committed offsets."
)
@click.option("--to-earliest", is_flag=True, help="Reset to the log start offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the log end offset.")
@click.option("--to-current", is_flag=True, help="Reset to the currently committed offset.")
@click.option("--to-offset", type=int, help="Reset to this offset.")
@click.option(
    "--to-datetime", "to_timestamp", type=options.TIME_MS,
    help="Reset to the first record at or after this time: ms, or ISO 8601 (UTC by default).",
)  # fmt: skip
@click.option("--shift-by", type=int, help="Shift by this many offsets; negative shifts back.")
@options.dry_run
@options.execute
@output.format_option
def reset_offsets(
    session: Session,
    /,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    **target: Any,
) -> None:
    """Reset the committed offsets of GROUP, which must not have members. An offset outside the log is set
    to the log start or end offset. Nothing is changed without --execute.

    \b
    Example:
      eosdb groups reset-offsets shop.db billing --topic orders --to-datetime 2026-11-21T12:00 --execute
    """
    if dry_run and execute:
        raise click.UsageError("give --dry-run or --execute, not both")
    if bool(topics) == all_topics:
        raise click.UsageError("name topics with --topic, or give --all-topics")
    given = [name for name, value in target.items() if value is not None and value is not False]
    if len(given) != 1:
        raise click.UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime "
            "and --shift-by"
        )
    with session.open(read_only=not execute) as db, guessing(db, group):
        known = db.broker.list_groups()
        tps = _partitions(db, group, topics)
        changes = db.admin.reset_offsets(group, tps, execute=execute, **target)
    output.listing(
        ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "OLD-OFFSET"),
        changes,
        group=lambda _: group,
        new_offset="after",
        old_offset=lambda it: output.known(it.before, "-"),
    )
    if group not in known:
        output.line(f"group {group} is new{guess(group, known)}", err=True)
    if not execute:
        output.line("dry run: nothing has been changed; add --execute to apply it", err=True)


def _partitions(db: eosdb.Database, group: str, topics: tuple[str, ...]) -> list[TopicPartition]:
    if not topics:
        report = db.admin.describe_group_offsets(group)
        return [TopicPartition(p.topic, p.partition) for p in report.partitions]
    tps = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        count = len(db.admin.describe_topic(name).partitions)
        wanted = _numbers(numbers, text) if colon else range(count)
        tps += [TopicPartition(name, number) for number in wanted]
    return tps


def _numbers(text: str, whole: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise click.UsageError(f"--topic: got {whole!r}, expected TOPIC or TOPIC:0,1,2")
    return [int(part) for part in parts]


@groups.command()
@click.argument("group", nargs=-1, required=True)
@_topics_option
@options.yes
def delete(session: Session, group: tuple[str, ...], topics: tuple[str, ...], yes: bool) -> None:
    """Delete GROUP, if it has no members; with --topic, only its offsets of topics that no member reads.

    \b
    Example:
      eosdb groups delete shop.db billing
      eosdb groups delete shop.db billing --topic orders
    """
    names = list(dict.fromkeys(group))
    offsets = f"the offsets of {', '.join(topics)}" if topics else "all committed offsets"
    with session.open() as db, guessing(db, *names):
        # Check all groups before the first is deleted, so that an unknown name changes nothing.
        chosen = {name: _partitions(db, name, topics) for name in names if topics}
        for name in names:
            if (count := len(db.broker.describe_group(name).members)) and not topics:
                raise NonEmptyGroupError(
                    f"group {name!r} has {count} members; stop them all before deleting it"
                )
        if not yes:
            all_names = ", ".join(names)
            what = f"{offsets} in {all_names}" if topics else f"{all_names} with {offsets}"
            click.confirm(f"delete {what}?", abort=True, err=True)
        for name in names:
            if topics:
                db.broker.offset_delete(name, chosen[name])
                output.done(f"deleted {offsets} in group {name}")
            else:
                db.broker.delete_group(name)
                output.done(f"deleted group {name}")
