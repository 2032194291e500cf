"""`eosdb dlq`: list, show and replay dead letters."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import click

import eosdb
from eosdb.cli import options, output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.model.words import counted


@click.group(cls=FileGroup)
def dlq() -> None:
    """List, show and replay dead letters."""


@dlq.command(name="list")
@click.argument("topic", required=False)
@click.option("--pending", is_flag=True, help="Only dead letters that have not been replayed.")
@output.format_option
def list_(session: Session, topic: str | None, pending: bool) -> None:
    """List the dead letters in TOPIC, or in all topics: original record, error, attempts, and whether the
    letter was replayed.

    \b
    Example:
      eosdb dlq list shop.db
      eosdb dlq list shop.db orders.dlq --pending
    """
    columns = (
        "ID", "PARTITION", "OFFSET", "KEY", "ORIGIN", "GROUP", "ATTEMPTS", "ERROR", "MESSAGE", "FAILED-AT",
        "REPLAYED",
    )  # fmt: skip
    others = Counter[str]()

    def dead(db: eosdb.Database) -> Iterator[eosdb.DeadLetter]:
        every = (
            [one.topic for one in db.admin.overview().dead_letters] if topic is None else [topic]
        )
        for letter in chain.from_iterable(db.dead_letters(name).letters() for name in every):
            if letter.failure is None:
                others[letter.record.topic] += 1
            elif not (pending and letter.is_replayed):
                yield letter

    with session.open(read_only=True) as db:
        output.listing(
            columns,
            dead(db),
            id=lambda it: f"{it.record.topic}/{it.record.partition}/{it.record.offset}",
            partition="record.partition",
            offset="record.offset",
            key="record.key",
            origin=lambda it: _origin(it.failure),
            group="failure.group_id",
            attempts="failure.attempts",
            error="failure.error",
            message="failure.message",
            failed_at=lambda it: output.Time(it.failure.failed_ms),
            replayed=lambda it: "yes" if it.is_replayed else "no",
        )
    for name, count in others.items():
        output.line(
            f"{name}: {counted(count, 'record')} without a failure in the headers: no dead letters",
            err=True,
        )


@dlq.command()
@click.argument("letter_id", metavar="ID")
@output.format_option
def show(session: Session, letter_id: str) -> None:
    """Show a dead letter in full, with the stack trace of its last failure. `dlq list` prints its ID.

    \b
    Example:
      eosdb dlq show shop.db orders.dlq/0/17
    """
    topic, partition, offset = _parts(letter_id)
    with session.open(read_only=True) as db:
        letter = db.dead_letters(topic).letter(partition, offset)
    record, failure = letter.record, letter.failure
    facts: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "replayed": letter.is_replayed,
    }
    if failure is not None:
        facts |= {
            "origin": _origin(failure),
            "group": failure.group_id,
            "attempts": failure.attempts,
            "failed_at": output.Time(failure.failed_ms),
            "error": failure.error,
            "message": failure.message,
            "stacktrace": failure.stacktrace,
        }
    own = [(name, data) for name, data in record.headers if not name.startswith("__eosdb.")]
    names = Counter[str]()
    for name, data in own:
        names[name] += 1
        facts[f"header {name}{f' ({names[name]})' if names[name] > 1 else ''}"] = data
    if output.is_format("table"):
        stacktrace = facts.pop("stacktrace", None)
        output.facts(facts)
        if stacktrace:
            output.line()
            output.lines(output.shown(stacktrace), indent="  ")
    else:
        output.facts(facts)


@dlq.command()
@click.argument("topic")
@click.option(
    "--offset", "offsets", type=click.IntRange(min=0), multiple=True,
    help="Only the dead letter at this offset (repeatable).",
)  # fmt: skip
@click.option(
    "--partition", type=click.IntRange(min=0), default=0, show_default=True,
    help="Partition of TOPIC for --offset.",
)  # fmt: skip
@click.option("--to-topic", metavar="TOPIC", help="Send to TOPIC instead of the original topics.")
@options.dry_run
@options.yes
def replay(
    session: Session,
    topic: str,
    offsets: tuple[int, ...],
    partition: int,
    to_topic: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send the dead letters in TOPIC back to their original topics, each exactly once. All groups of these
    topics get them. Letters that an earlier run has replayed are skipped, even if it was killed. On a
    terminal, a question comes first.

    \b
    Example:
      eosdb dlq replay shop.db orders.dlq
      eosdb dlq replay shop.db orders.dlq --offset 17 --offset 21
    """
    chosen = [(partition, offset) for offset in offsets] or None
    if dry_run or (not yes and sys.stdin.isatty()):
        with session.open(read_only=True) as db:
            where = _targets(db.dead_letters(topic), chosen, to_topic)
        what = f"replay {counted(where.total(), 'dead letter')} of {topic}"
        for target, count in where.items():
            what += f", {count} to {target}" if len(where) > 1 else f" to {target}"
        if dry_run:
            output.line(f"would {what}; nothing has been sent")
            return
        click.confirm(f"{what}?", abort=True, err=True)
    with session.open() as db, output.progress("replay"):
        report = db.dead_letters(topic).replay(chosen, to_topic)
    output.done(
        f"replayed {counted(report.replayed, 'dead letter')} of {topic}; {report.skipped} had been "
        "replayed before"
    )


def _targets(
    letters: eosdb.DeadLetters, chosen: list[tuple[int, int]] | None, to_topic: str | None
) -> Counter[str]:
    """How many letters a replay would send to each topic."""
    return Counter(
        to_topic or letter.failure.topic
        for letter in letters.letters()
        if letter.failure is not None
        and not letter.is_replayed
        and (chosen is None or (letter.record.partition, letter.record.offset) in chosen)
    )


def _parts(letter_id: str) -> tuple[str, int, int]:
    """Parse a dead letter's ID into topic, partition and offset."""
    match letter_id.rsplit("/", 2):
        case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
            return topic, int(partition), int(offset)
    raise click.UsageError(
        f"{letter_id}: expected TOPIC/PARTITION/OFFSET, as `eosdb dlq list` prints it"
    )


def _origin(failure: eosdb.Failure) -> str:
    return f"{failure.topic}/{failure.partition}/{failure.offset}"
