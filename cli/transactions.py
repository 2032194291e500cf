"""`eosdb transactions`: list and describe, with the columns of kafka-transactions.sh."""

from __future__ import annotations

import click

from . import output
from .session import Session, pass_session

_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip


def _states(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in _STATES:
            raise click.BadParameter(f"got {name!r}, expected one of {', '.join(_STATES)}")
    return names


@click.group()
def transactions() -> None:
    """Look at transactions."""


@transactions.command(name="list")
@click.option(
    "--state", "states", multiple=True, callback=_states, help="Only this state; may be repeated."
)
@click.option(
    "--duration-filter", type=int, default=-1, metavar="MS", help="Only those begun longer ago."
)
@output.format_option
@pass_session
def list_(
    session: Session, states: tuple[str, ...], duration_filter: int, output_format: str
) -> None:
    """Every transactional id and the state of its transaction.

    \b
    Example:
      eosdb transactions list --state Ongoing
    """
    with session.open(read_only=True) as db:
        found = db.broker.list_transactions(states=states, duration_ms=duration_filter)
        output.rows(
            ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
            [
                (
                    listing.transactional_id,
                    db.broker.find_coordinator(listing.transactional_id).partition,
                    listing.producer_id,
                    listing.state,
                )
                for listing in found
            ],
            output_format,
        )


@transactions.command()
@click.argument("transactional_id")
@output.format_option
@pass_session
def describe(session: Session, transactional_id: str, output_format: str) -> None:
    """One transactional id in full.

    \b
    Example:
      eosdb transactions describe shop-1
    """
    with session.open(read_only=True) as db:
        found = db.broker.describe_transactions([transactional_id])[transactional_id]
        open_since = found.transaction_start_time_ms if found.state == "Ongoing" else -1
        output.rows(
            (
                "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch",
                "TransactionState", "TransactionTimeoutMs", "CurrentTransactionStartTimeMs",
                "TransactionDurationMs", "TopicPartitions",
            ),
            [
                (
                    found.coordinator,
                    found.transactional_id,
                    found.producer_id,
                    found.producer_epoch,
                    found.state,
                    found.transaction_timeout_ms,
                    "None" if open_since < 0 else open_since,
                    "None" if open_since < 0 else db.clock.time_ms() - open_since,
                    ",".join(map(str, sorted(found.partitions))),
                )
            ],
            output_format,
        )  # fmt: skip
