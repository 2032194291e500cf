"""`eosdb dlq`: records that could not be processed, why, and sending them back."""

from __future__ import annotations

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.session import Session, pass_session


@click.group()
def dlq() -> None:
    """Inspect and replay dead letters."""


@dlq.command(name="list")
@click.argument("topic")
@click.option("--pending", is_flag=True, help="Only dead letters that have not been replayed.")
@output.format_option
@pass_session
def list_(session: Session, topic: str, pending: bool, output_format: str) -> None:
    """List the dead letters in TOPIC: origin, error, attempts, and whether they have been replayed.

    \b
    Example:
      eosdb dlq list orders.dlq --pending
    """
    columns = (
        "ID", "PARTITION", "OFFSET", "KEY", "ORIGIN", "GROUP", "ATTEMPTS", "ERROR", "MESSAGE", "FAILED-AT",
        "REPLAYED",
    )  # fmt: skip
    with session.open(read_only=True) as db:
        output.rows(
            columns,
            (
                _row(letter)
                for letter in db.dead_letters(topic).letters()
                if not (pending and letter.is_replayed)
            ),
            output_format,
        )


@dlq.command()
@click.argument("topic", metavar="ID|TOPIC")
@click.argument("offset", type=click.IntRange(min=0), required=False)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Partition of TOPIC.",
)
@output.format_option
@pass_session
def show(
    session: Session, topic: str, offset: int | None, partition: int, output_format: str
) -> None:
    """Show one dead letter in full, with the stack trace of its last failure: by the ID that `dlq list`
    prints, or by TOPIC and OFFSET.

    \b
    Example:
      eosdb dlq show orders.dlq/0/17
      eosdb dlq show orders.dlq 17
    """
    if offset is None:
        topic, partition, offset = _parts(topic)
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
    facts |= {f"header {name}": data for name, data in own}
    if output_format == "table":
        stacktrace = facts.pop("stacktrace", None)
        output.facts(facts, output_format)
        if stacktrace:
            output.line()
            output.lines(output.shown(stacktrace), indent="  ")
    else:
        output.facts(facts, output_format)


@dlq.command()
@click.argument("topic")
@click.option(
    "--offset",
    "offsets",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only the dead letter at this offset (repeatable).",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Partition of TOPIC for --offset.",
)
@click.option("--to", help="Send to this topic instead of the original one.")
@pass_session
def replay(
    session: Session, topic: str, offsets: tuple[int, ...], partition: int, to: str | None
) -> None:
    """Send the dead letters in TOPIC back to the topics they came from, each exactly once.

    Safe to repeat, also after a kill: what has been replayed is not sent again.

    \b
    Example:
      eosdb dlq replay orders.dlq
      eosdb dlq replay orders.dlq --offset 17 --offset 21
    """
    chosen = [(partition, offset) for offset in offsets] or None
    with session.open() as db:
        report = db.dead_letters(topic).replay(chosen, to)
    output.line(
        f"replayed {report.replayed} dead letters of {topic}; {report.skipped} had been replayed before"
    )


def _row(letter: eosdb.DeadLetter) -> tuple[object, ...]:
    record, failure = letter.record, letter.failure
    why: tuple[object, ...] = ("", "", "", "", "", "")
    if failure is not None:
        why = (
            _origin(failure),
            failure.group_id,
            failure.attempts,
            failure.error,
            failure.message,
            output.Time(failure.failed_ms),
        )
    replayed = "yes" if letter.is_replayed else "no"
    name = f"{record.topic}/{record.partition}/{record.offset}"
    return (name, record.partition, record.offset, record.key, *why, replayed)


def _parts(letter_id: str) -> tuple[str, int, int]:
    """Topic, partition and offset of an ID."""
    match letter_id.rsplit("/", 2):
        case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
            return topic, int(partition), int(offset)
    raise click.UsageError(
        f"{letter_id}: expected TOPIC/PARTITION/OFFSET, as `eosdb dlq list` prints it, or TOPIC OFFSET"
    )


def _origin(failure: eosdb.Failure) -> str:
    return f"{failure.topic}/{failure.partition}/{failure.offset}"
