"""Everything that eosdb says, by room: the same table as in docs/observability.md, which a test compares.

Values, keys and headers of records, passwords and settings of security are in no message and no field. What
a program's own exception says is shown, in one line of at most 200 characters.
"""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING
from typing import Final

from eosdb.model.notices.notice import Notice

PROCESSOR: Final = "eosdb.processor"
CONSUMER: Final = "eosdb.consumer"
PRODUCER: Final = "eosdb.producer"
TRANSACTIONS: Final = "eosdb.transactions"
GROUPS: Final = "eosdb.groups"
STORE: Final = "eosdb.store"
LOG: Final = "eosdb.log"
HOUSEKEEPING: Final = "eosdb.housekeeping"
WIRE: Final = "eosdb.wire"
RELAY: Final = "eosdb.relay"
LIBRDKAFKA: Final = "eosdb.relay.librdkafka"
SPARK: Final = "eosdb.spark_io"

_RECORD: Final = ("topic", "partition", "offset", "group_id")
_PRODUCER: Final = ("transactional_id", "producer_id", "producer_epoch")

# -- programs: processors, consumers, producers -------------------------------------------------

ATTEMPT_FAILED: Final = Notice(
    PROCESSOR, WARNING, "attempt_failed", (*_RECORD, "attempt", "error", "next_step", "delay_ms"),
    "a handler has failed; `next_step` is `retry`, `retry_topic`, `dead_letter` or `stop`, `delay_ms` "
    "the pause before it; with a traceback where the logger is set to DEBUG",
)  # fmt: skip
DEAD_LETTER: Final = Notice(
    PROCESSOR, ERROR, "dead_letter", (*_RECORD, "attempt", "error", "dead_letter_topic"),
    "a record is in the dead letter topic, for good: its transaction is committed",
)  # fmt: skip
PROCESSED_AGAIN: Final = Notice(
    PROCESSOR, INFO, "processed_again", ("group_id", "records", "error"),
    "a transaction could not be committed, as after a rebalance; its records are processed again",
)  # fmt: skip
OTHERS_STAND_STILL: Final = Notice(
    PROCESSOR, WARNING, "group_waits", ("group_id",),
    "this member has nothing left to do, others have, and get no further; once for each situation",
)  # fmt: skip
REBALANCED: Final = Notice(
    CONSUMER, INFO, "rebalanced", ("group_id", "member_id", "generation_id", "gained", "lost"),
    "a member is in a new generation of its group; `gained` and `lost` are lists of `topic-partition`",
)  # fmt: skip
MEMBERSHIP_LOST: Final = Notice(
    CONSUMER, WARNING, "membership_lost", ("group_id", "member_id", "generation_id", "error"),
    "the group has gone on without this member, whose partitions others may have; it joins again",
)  # fmt: skip
POLLED_TOO_LATE: Final = Notice(
    CONSUMER, WARNING, "polled_too_late", ("group_id", "member_id", "max_poll_interval_ms"),
    "a member has left its group because its program has not polled for `max_poll_interval_ms`",
)  # fmt: skip
TOPIC_MADE_ANEW: Final = Notice(
    CONSUMER, WARNING, "topic_made_anew", ("topic", "partition", "offset"),
    "a topic was deleted and made anew while it was read; the consumer goes on where the new one begins",
)  # fmt: skip
MEMBER_FENCED: Final = Notice(
    CONSUMER, ERROR, "member_fenced", ("group_id", "member_id", "group_instance_id"),
    "another consumer with the same `group_instance_id` has taken this static member's place",
)  # fmt: skip
PRODUCER_FENCED: Final = Notice(
    PRODUCER, WARNING, "producer_fenced", (*_PRODUCER, "error"),
    "another producer has taken the transactional id, or its transaction was aborted by time-out; this "
    "one can only be closed",
)  # fmt: skip
CALLBACK_FAILED: Final = Notice(
    PRODUCER, ERROR, "callback_failed", (),
    "a delivery callback has raised, with its traceback; the producer goes on",
)  # fmt: skip
SINGLE_SENDS: Final = Notice(
    PRODUCER, WARNING, "single_sends", ("records",),
    "many records were committed one by one in a short time; once for each producer",
)  # fmt: skip

# -- the file -----------------------------------------------------------------------------------

TRANSACTION_TIMED_OUT: Final = Notice(
    TRANSACTIONS, WARNING, "transaction_timed_out", (*_PRODUCER, "open_ms"),
    "a transaction was open for longer than its time-out and has been aborted; in the process that has "
    "done it",
)  # fmt: skip
OWNER_DIED: Final = Notice(
    TRANSACTIONS, WARNING, "owner_died", (*_PRODUCER, "open_ms"),
    "the process that had a large `append_once` open has died, and its transaction has been aborted",
)  # fmt: skip
TRANSACTION_TAKEN_OVER: Final = Notice(
    TRANSACTIONS, WARNING, "transaction_taken_over", _PRODUCER,
    "a producer has taken a transactional id whose earlier producer had a transaction open: that one is "
    "fenced, its transaction aborted",
)  # fmt: skip
RECOVERED: Final = Notice(
    TRANSACTIONS, WARNING, "recovered", ("file", "transactions"),
    "transactions that a process had decided, and had not completed when it ended, have been completed",
)  # fmt: skip
MEMBER_REMOVED: Final = Notice(
    GROUPS, INFO, "member_removed", ("group_id", "member_id", "reason"),
    "a member is out of its group; `reason` is `session_ended`, `process_died` or `did_not_rejoin`",
)  # fmt: skip
SLOW_COMMIT: Final = Notice(
    STORE, WARNING, "slow_commit",
    ("file", "took_ms", "lock_ms", "work_ms", "commit_ms", "checkpoint_ms", "requests"),
    "a commit has taken `slow_commit_ms` or longer: waiting for other writers, its statements, COMMIT with "
    "its fsync, the checkpoint behind it",
)  # fmt: skip
WRITES_FAIL: Final = Notice(
    STORE, ERROR, "writes_fail", ("file", "error"),
    "the disk is full, or the file or its disk refuses writes; once, until a write succeeds",
)  # fmt: skip
WRITES_AGAIN: Final = Notice(
    STORE, INFO, "writes_again", ("file",), "the first commit after `writes_fail`"
)
WAL_RENEWED: Final = Notice(
    STORE, WARNING, "wal_renewed", ("file",),
    "the disk had failed to sync a commit, of any process; what the WAL holds has been written again",
)  # fmt: skip
WAL_GROWS: Final = Notice(
    STORE, WARNING, "wal_grows", ("file", "wal_bytes"),
    "the WAL is kept from being copied or reused, and has reached 64 MiB; again whenever it has doubled",
)  # fmt: skip
DAMAGE_FOUND: Final = Notice(
    STORE, ERROR, "damage_found", ("file", "error"),
    "a request has met a damaged row or page; once for each finding",
)  # fmt: skip
OLD_RECORDS: Final = Notice(
    LOG, WARNING, "old_records", ("topic", "retention_ms"),
    "records arrive that are older than what the topic keeps; once for each topic",
)  # fmt: skip
HOUSEKEPT: Final = Notice(
    HOUSEKEEPING, INFO, "housekept",
    ("file", "expired_transactional_ids", "expired_producers", "expired_offsets", "deleted_records",
     "compacted_records", "expired_idempotency_keys", "expired_sinks", "trimmed_events", "freed_bytes"),
    "a round of housekeeping has deleted something",
)  # fmt: skip
HOUSEKEEPING_LATER: Final = Notice(
    HOUSEKEEPING, WARNING, "housekeeping_later", ("file", "error"),
    "a round of housekeeping has failed; the next one goes on",
)  # fmt: skip

# -- beside the file ----------------------------------------------------------------------------

CONNECTED: Final = Notice(WIRE, DEBUG, "connected", ("client_host",), "a client has connected")
DISCONNECTED: Final = Notice(
    WIRE, DEBUG, "disconnected", ("client_host",), "a client has closed its connection"
)
CONNECTION_BROKE: Final = Notice(
    WIRE, DEBUG, "connection_broke", ("client_host", "error"), "a connection has broken"
)
CONNECTION_CLOSED: Final = Notice(
    WIRE, WARNING, "connection_closed", ("client_host", "error"),
    "the server has closed a connection: nonsense, a time-out, a refusal",
)  # fmt: skip
REFUSED_BY_FILE: Final = Notice(
    WIRE, WARNING, "refused_by_file", ("client_host", "error"),
    "the file was locked for too long, full or failing, or memory ran out; the server has closed the "
    "connection, so that nothing overtakes the request that was refused",
)  # fmt: skip
CONNECTION_FAILED: Final = Notice(
    WIRE, ERROR, "connection_failed", ("client_host",),
    "the server has closed a connection because of an error of its own, with its traceback",
)  # fmt: skip
REQUEST_FAILED: Final = Notice(
    WIRE, WARNING, "request_failed", ("api", "api_version", "error"),
    "a request has failed in a way that its handler does not know; the client was told",
)  # fmt: skip
LOGIN_REFUSED: Final = Notice(
    WIRE, WARNING, "login_refused", ("client_host", "error"), "a client has failed to log in"
)
TOO_MANY_CONNECTIONS: Final = Notice(
    WIRE, WARNING, "too_many_connections", ("connections",),
    "there are as many connections as `Limits` allows, and a further one was closed; once, until there "
    "are fewer",
)  # fmt: skip
CANNOT_ACCEPT: Final = Notice(
    WIRE, WARNING, "cannot_accept", ("error",),
    "the system refuses connections to the server, which tries again",
)  # fmt: skip
SETTINGS_KEPT: Final = Notice(
    WIRE, INFO, "settings_kept", ("topic", "settings"),
    "a client has given a topic settings that Kafka has and that have no effect here",
)  # fmt: skip
RELAY_WAITS: Final = Notice(
    RELAY, WARNING, "relay_waits", ("relay",),
    "a relay cannot go on, or does something that is worth knowing; it says what and why",
)  # fmt: skip
FILE_LEFT_OUT: Final = Notice(
    SPARK, WARNING, "file_left_out", ("file",), "a file of several, or the rest of it, is not read"
)
LOSS_ACCEPTED: Final = Notice(
    SPARK, WARNING, "loss_accepted", (), "what a query was to read is gone; failOnDataLoss=false"
)
OFFSETS_NOT_NOTED: Final = Notice(
    SPARK, WARNING, "offsets_not_noted", ("file", "group_id"),
    "a query's progress could not be committed to its group; the query goes on",
)  # fmt: skip

BATCH_LEFT_OUT: Final = Notice(
    SPARK, WARNING, "batch_left_out", ("file",),
    "a write has appended none of its rows: its batch is in the file already, or a newer run is",
)  # fmt: skip

CATALOG: Final[tuple[Notice, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Notice)
)
