"""`eosdb transactions`: kafka-transactions.sh, with its columns."""

from __future__ import annotations

import click

import eosdb
from eosdb import TopicPartition, TransactionState
from eosdb.admin.transactions import told
from eosdb.cli import options, output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import InvalidTxnStateError, TransactionalIdNotFoundError
from eosdb.model.config import guess

_STATES = [state.label for state in TransactionState]
_MINUTE_MS = 60_000


@click.group(cls=FileGroup)
def transactions() -> None:
    """List, describe and end transactions, and find hanging ones."""


@transactions.command(name="list")
@click.option(
    "--in-state", "states", multiple=True, type=click.Choice(_STATES), metavar="STATE",
    help="Only transactions in this state (repeatable).",
)  # fmt: skip
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True,
    help="Only this producer id (repeatable).",
)  # fmt: skip
@click.option(
    "--duration-filter", type=int, default=-1, metavar="MS",
    help="Only transactions running longer than this.",
)  # fmt: skip
@output.format_option
def list_(
    session: Session, states: tuple[str, ...], producer_ids: tuple[int, ...], duration_filter: int
) -> None:
    """List transactional ids and the state of their transactions. Standard error names those that the next
    write to the file will end: they have timed out, or their owner has died.

    \b
    Example:
      eosdb transactions list shop.db --in-state Ongoing --duration-filter 60000
    """
    with session.open(read_only=True) as db:
        listings = db.broker.list_transactions(states, producer_ids, duration_filter)
        output.listing(
            ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
            listings,
            coordinator=lambda it: db.broker.find_coordinator(it.transactional_id).partition,
            transaction_state="state",
        )
        output.due((listing.transactional_id, listing.due) for listing in listings)


@transactions.command()
@click.argument("transactional_id")
@click.option("--history", is_flag=True, help="Show the id's events in the journal instead.")
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="With --history: only the last N."
)
@output.format_option
def describe(session: Session, transactional_id: str, history: bool, last: int | None) -> None:
    """Describe TRANSACTIONAL_ID and its transaction.

    \b
    Example:
      eosdb transactions describe shop.db shop-1
      eosdb transactions describe shop.db shop-1 --history --last 20
    """
    if last is not None and not history:
        raise click.UsageError("--last needs --history")
    with session.open(read_only=True) as db:
        if history:
            _show_history(db, transactional_id, last)
            return
        described = db.broker.describe_transactions([transactional_id])[transactional_id]
        is_open = described.state == TransactionState.ONGOING.label
        began, now = described.transaction_start_time_ms, db.clock.time_ms()
        output.listing(
            (
                "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch",
                "TransactionState", "TransactionTimeoutMs", "CurrentTransactionStartTimeMs",
                "TransactionDurationMs", "TopicPartitions",
            ),
            [described],
            coordinator_id="coordinator",
            transaction_state="state",
            current_transaction_start_time_ms=lambda _: output.Time(began) if is_open else "None",
            transaction_duration_ms=lambda _: now - began if is_open else "None",
            topic_partitions=lambda it: ",".join(map(str, sorted(it.partitions))),
        )  # fmt: skip
        output.due([(described.transactional_id, described.due)])


@transactions.command("describe-producers")
@options.partition_argument()
@output.format_option
def describe_producers(session: Session, where: TopicPartition) -> None:
    """Describe the active producers of a partition.

    \b
    Example:
      eosdb transactions describe-producers shop.db orders/0
    """
    with session.open(read_only=True) as db:
        output.listing(
            (
                "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence",
                "LastTimestamp", "CurrentTransactionStartOffset",
            ),
            db.broker.describe_producers(where),
            latest_coordinator_epoch="coordinator_epoch",
            last_timestamp=lambda it: output.Time(it.last_timestamp),
            current_transaction_start_offset=lambda it: output.known(it.current_txn_start_offset),
        )  # fmt: skip


@transactions.command("find-hanging")
@options.topic
@options.partition
@click.option(
    "--max-transaction-timeout", type=click.IntRange(min=0), default=0, metavar="MINUTES",
    help="Only transactions whose last record is at least this old.",
)  # fmt: skip
@output.format_option
def find_hanging(
    session: Session, topic: str | None, partition: int | None, max_transaction_timeout: int
) -> None:
    """Find transactions that are open in a partition and that the coordinator will not end: it does not
    know them or has completed them, or they are due and no program has written since.

    \b
    Example:
      eosdb transactions find-hanging shop.db
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    with session.open(read_only=True) as db:
        if topic is not None:
            described = db.admin.describe_topic(topic)
            if partition is not None and partition >= len(described.partitions):
                db.broker.offsets(TopicPartition(topic, partition))
        hanging = db.admin.find_hanging_transactions(max_transaction_timeout * _MINUTE_MS)
        now = db.clock.time_ms()
        output.listing(
            (
                "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
                "LastTimestamp", "Duration(min)", "TransactionalId", "Reason",
            ),
            (one for one in hanging if topic in (None, one.topic) and partition in (None, one.partition)),
            last_timestamp=lambda it: output.Time(it.last_timestamp),
            reason=lambda it: "" if it.hanging is None else it.hanging.value,
            **{"duration(min)": lambda it: max(now - it.start_time_ms, 0) // _MINUTE_MS},
        )  # fmt: skip


@transactions.command()
@options.partition_argument(whole_topic=True)
@click.option(
    "--start-offset", type=click.IntRange(min=0),
    help="First offset of the transaction in the partition; find-hanging and why show it. Left out: the "
    "argument is a transactional id.",
)  # fmt: skip
def abort(session: Session, where: TopicPartition, start_offset: int | None) -> None:
    """Abort a transaction that is open in a partition, or that of a transactional id, so that readers can
    proceed.

    An ongoing transaction is aborted in all its partitions, and its producer fenced. A hanging transaction
    gets its marker in this partition: a commit marker if the coordinator decided so, or else abort.

    \b
    Example:
      eosdb transactions abort shop.db orders/0 --start-offset 200
      eosdb transactions abort shop.db shop-1
    """
    with session.open() as db:
        if start_offset is None:
            where, start_offset = _open_of(db, where)
        elif where.partition < 0:
            raise click.UsageError(f"name the partition, such as {where.topic}/0")
        outcome = db.admin.abort_transaction(where, start_offset)
        stable = db.broker.offsets(where).last_stable_offset
    done = "aborted" if outcome == "ABORT" else "committed, as the coordinator had decided,"
    output.done(
        f"{done} the transaction from offset {start_offset} of {where}; its last stable offset is "
        f"{stable}"
    )


@transactions.command()
@click.argument("transactional_id")
def fence(session: Session, transactional_id: str) -> None:
    """Fence the current producer of TRANSACTIONAL_ID, which must exist, and abort its open transaction.

    \b
    Example:
      eosdb transactions fence shop.db shop-1
    """
    with session.open() as db:
        db.broker.describe_transactions(
            [transactional_id]
        )  # Raises for an id that would be created.
        now = db.admin.fence_producer(transactional_id)
    output.done(
        f"fenced {transactional_id}: producer id {now.producer_id}, epoch {now.producer_epoch}; "
        "earlier producers with this id are fenced"
    )


def _open_of(db: eosdb.Database, id_as_topic: TopicPartition) -> tuple[TopicPartition, int]:
    """The place where the open transaction of a transactional id begins."""
    topic, partition = id_as_topic
    transactional_id = topic if partition < 0 else f"{topic}/{partition}"
    for one in db.admin.open_transactions():
        if one.transactional_id == transactional_id:
            return one.topic_partition, one.start_offset
    known = [one.transactional_id for one in db.broker.list_transactions()]
    if transactional_id in known:
        raise InvalidTxnStateError(f"{transactional_id} has no transaction with records open")
    raise TransactionalIdNotFoundError(
        f"there is no transactional id {transactional_id!r}{guess(transactional_id, known)}; to abort by "
        "partition, give TOPIC/PARTITION and --start-offset"
    )


def _show_history(db: eosdb.Database, transactional_id: str, last: int | None) -> None:
    entries = db.admin.transaction_history(transactional_id)
    events = told(db.query, transactional_id, entries)
    before = [entries[0].timestamp, *(entry.timestamp for entry in entries)]
    output.rows(
        ("Position", "Timestamp", "ElapsedMs", "Event", "Detail"),
        [
            (
                entry.position,
                output.Time(entry.timestamp),
                entry.timestamp - earlier,
                entry.kind,
                text,
            )
            for (entry, text), earlier in list(zip(events, before, strict=False))[-(last or 0) :]
        ],
    )
