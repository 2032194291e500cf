"""Every kind of log line, by logger. `make_notices` makes the same table in docs/internals/notices.md.

Messages and fields never contain keys, values or headers of records, passwords or security settings. They
may contain the message of a user's exception, in one line of at most 200 characters.
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
    "group %(group_id)s: %(topic)s-%(partition)d offset %(offset)d: attempt %(attempt)d of %(attempts)d "
    "failed: %(cause)s; %(next_step_text)s",
    "a handler has failed; `next_step` is `retry`, `retry_later`, `dead_letter` or `stop`, `delay_ms` "
    "the pause before it; with a traceback where the logger is set to DEBUG",
)  # fmt: skip
DEAD_LETTER: Final = Notice(
    PROCESSOR, ERROR, "dead_letter", (*_RECORD, "attempt", "error", "dead_letter_topic"),
    "group %(group_id)s: %(topic)s-%(partition)d offset %(offset)d: given up after attempt %(attempt)d, "
    "and sent to %(dead_letter_topic)s: %(cause)s",
    "a record is in the dead letter topic, for good: its transaction is committed",
)  # fmt: skip
PROCESSED_AGAIN: Final = Notice(
    PROCESSOR, INFO, "processed_again", ("group_id", "records", "error"),
    "group %(group_id)s: a transaction of %(records)d records is rolled back, and they are processed "
    "again: %(cause)s",
    "a transaction could not be committed, as after a rebalance; its records are processed again",
)  # fmt: skip
OTHERS_STAND_STILL: Final = Notice(
    PROCESSOR, WARNING, "group_waits", ("group_id",),
    "group %(group_id)s: this member has read everything and waits for others without progress: "
    "%(holders)s. A hanging member's partitions move to others when its session ends. Offsets in a "
    "transaction can be read when it ends, after transaction_timeout_ms at the latest",
    "this member has processed everything, and other members with unread records make no progress; once "
    "for each situation",
)  # fmt: skip
GROUP_LAG_DENIED: Final = Notice(
    PROCESSOR, WARNING, "group_lag_denied", ("group_id", "error"),
    "group %(group_id)s: the lag of the group may not be read: %(error_message)s",
    "with `until_idle_ms`: the user may not read the lag of the group, so the processor stops when this "
    "member is idle",
)  # fmt: skip
SIGNAL_SENT_AGAIN: Final = Notice(
    PROCESSOR, ERROR, "signal_sent_again", ("group_id", "signal", "error"),
    "group %(group_id)s: the run failed after %(signal)s, which is sent again: %(cause)s",
    "`run` was told to stop by a signal, and raised an error instead of returning; the signal is sent "
    "again, so that a program which repeats a failed run ends, too",
)  # fmt: skip
REBALANCED: Final = Notice(
    CONSUMER, INFO, "rebalanced", ("group_id", "member_id", "generation_id", "gained", "lost"),
    "group %(group_id)s: generation %(generation_id)d: member %(member_id)s reads %(assigned_names)s "
    "(gained %(gained_names)s; lost %(lost_names)s)",
    "a member is in a new generation of its group; `gained` and `lost` are lists of `topic-partition`",
)  # fmt: skip
MEMBERSHIP_LOST: Final = Notice(
    CONSUMER, WARNING, "membership_lost", ("group_id", "member_id", "generation_id", "error"),
    "group %(group_id)s: member %(member_id)s was removed from generation %(generation_id)d, and joins "
    "again: %(error_text)s",
    "the group has rebalanced without this member, whose partitions may be assigned to others; it rejoins",
)  # fmt: skip
POLLED_TOO_LATE: Final = Notice(
    CONSUMER, WARNING, "polled_too_late", ("group_id", "member_id", "max_poll_interval_ms"),
    "group %(group_id)s: member %(member_id)s leaves: its program has not polled for "
    "max_poll_interval_ms=%(max_poll_interval_ms)d; process fewer records for each poll "
    "(max_poll_records), or raise it",
    "a member has left its group because its program has not polled for `max_poll_interval_ms`",
)  # fmt: skip
TOPIC_MADE_ANEW: Final = Notice(
    CONSUMER, WARNING, "topic_made_anew", ("topic", "partition", "offset"),
    "%(topic)s-%(partition)d: the topic was deleted and recreated; this consumer was at offset "
    "%(offset)s, and continues at the beginning of the new topic",
    "a topic was deleted and recreated while it was read; the consumer resumes at the beginning of the "
    "new one",
)  # fmt: skip
MEMBER_FENCED: Final = Notice(
    CONSUMER, ERROR, "member_fenced", ("group_id", "member_id", "group_instance_id"),
    "group %(group_id)s: another consumer has joined as group_instance_id %(group_instance_id)s; this one "
    "can only be closed",
    "another consumer with the same `group_instance_id` has taken this static member's place",
)  # fmt: skip
PRODUCER_FENCED: Final = Notice(
    PRODUCER, WARNING, "producer_fenced", (*_PRODUCER, "error"),
    "transactional id %(transactional_id)s: this producer is fenced: %(error_text)s",
    "another producer has taken the transactional id, or its transaction was aborted by time-out; this "
    "one can only be closed",
)  # fmt: skip
CALLBACK_FAILED: Final = Notice(
    PRODUCER, ERROR, "callback_failed", (), "a delivery callback has raised",
    "a delivery callback has raised, with its traceback; the producer goes on",
)  # fmt: skip
SINGLE_SENDS: Final = Notice(
    PRODUCER, WARNING, "single_sends", ("records",),
    "%(records)d records were sent one by one within %(took_ms)d ms, each in a commit of its own; many "
    "times faster: send_many, a transaction around them, or linger_ms=5 and flush() at the end",
    "many records were committed one by one in a short time; once for each producer",
)  # fmt: skip

# -- the file -----------------------------------------------------------------------------------

TRANSACTION_TIMED_OUT: Final = Notice(
    TRANSACTIONS, WARNING, "transaction_timed_out", (*_PRODUCER, "open_ms"),
    "transactional id %(transactional_id)s: the transaction of producer %(producer_id)d, epoch "
    "%(producer_epoch)d, is aborted: it was open for %(open_ms)d ms, and its time-out is %(timeout_ms)d ms",
    "a transaction was open for longer than its time-out and has been aborted; logged by the process "
    "that aborted it",
)  # fmt: skip
OWNER_DIED: Final = Notice(
    TRANSACTIONS, WARNING, "owner_died", (*_PRODUCER, "open_ms"),
    "transactional id %(transactional_id)s: the transaction of producer %(producer_id)d, epoch "
    "%(producer_epoch)d, is aborted: it was open for %(open_ms)d ms, and its process has died",
    "the process of a large `append_once` or of a processor has died, and its transaction has been aborted",
)  # fmt: skip
TRANSACTION_TAKEN_OVER: Final = Notice(
    TRANSACTIONS, WARNING, "transaction_taken_over", _PRODUCER,
    "transactional id %(transactional_id)s: producer %(producer_id)d is fenced, and its open transaction "
    "aborted: a new producer has taken the id, or an administrator has ended the transaction",
    "a new producer, or `eosdb transactions abort` or `fence`, has taken a transactional id: its producer "
    "is fenced, its open transaction aborted",
)  # fmt: skip
RECOVERED: Final = Notice(
    TRANSACTIONS, WARNING, "recovered", ("file", "transactions"),
    "%(file)s: completed %(transactions)d transactions that an earlier process had decided but not "
    "completed, for example because it was killed",
    "a process had decided transactions, but ended before it completed them; they are complete now",
)  # fmt: skip
LIFE_BEGAN: Final = Notice(
    TRANSACTIONS, WARNING, "life_began", ("file", "life"),
    "%(file)s: this file was copied or restored, and begins life %(life)d: open transactions were aborted, "
    "transactional ids forgotten, group members removed",
    "the first writer of a copied or restored file has begun a new life (docs/backups.md)",
)  # fmt: skip
MEMBER_REMOVED: Final = Notice(
    GROUPS, INFO, "member_removed", ("group_id", "member_id", "reason"),
    "group %(group_id)s: member %(member_id)s was removed: %(cause)s",
    "a member was removed from its group; `reason` is `session_ended`, `process_died` or `did_not_rejoin`",
)  # fmt: skip
SLOW_COMMIT: Final = Notice(
    STORE, WARNING, "slow_commit",
    ("file", "took_ms", "lock_ms", "work_ms", "commit_ms", "checkpoint_ms", "requests"),
    "%(file)s: a commit of %(requests)d requests took %(took_ms)d ms: %(lock_ms)d ms waiting for other "
    "writers, %(work_ms)d ms its statements, %(commit_ms)d ms COMMIT and fsync, %(checkpoint_ms)d ms the "
    "checkpoint",
    "a commit has taken `slow_commit_ms` or longer: waiting for other writers, its statements, COMMIT with "
    "its fsync, the checkpoint behind it",
)  # fmt: skip
WRITES_FAIL: Final = Notice(
    STORE, ERROR, "writes_fail", ("file", "error"), "%(file)s: writes fail: %(cause)s",
    "the disk is full, or the file or its disk refuses writes; once, until a write succeeds",
)  # fmt: skip
WRITES_AGAIN: Final = Notice(
    STORE, INFO, "writes_again", ("file",), "%(file)s: writes succeed again",
    "the first commit after `writes_fail`",
)  # fmt: skip
WAL_RENEWED: Final = Notice(
    STORE, WARNING, "wal_renewed", ("file",),
    "%(file)s: the disk had failed to sync a commit; the WAL has been written again and is on the disk",
    "the disk had failed to sync a commit of some process; the content of the WAL has been written again",
)  # fmt: skip
WAL_GROWS: Final = Notice(
    STORE, WARNING, "wal_grows", ("file", "wal_bytes"),
    "%(file)s: the WAL has %(wal_mib)d MiB and grows with every write, because a snapshot from "
    "%(snapshot_mib)d MiB ago is still being read, by %(readers)s. Let it end: read the rest of the query, "
    "close its cursor or transaction, or end the process",
    "a reader keeps the WAL from being reused, and it has reached 64 MiB; again whenever it has doubled",
)  # fmt: skip
WAL_NOT_COPIED: Final = Notice(
    STORE, WARNING, "wal_grows", ("file", "wal_bytes"),
    "%(file)s: %(wal_mib)d MiB of the WAL are not in the file, and external_checkpoints leaves that to "
    "another program. Start it (such as Litestream), or open the file without that setting",
    "with `external_checkpoints`: no program has copied the WAL into the file, and it has reached 64 MiB; "
    "again whenever it has doubled",
)  # fmt: skip
DAMAGE_FOUND: Final = Notice(
    STORE, ERROR, "damage_found", ("file", "error"), "%(file)s: damage found: %(error_message)s",
    "a request has met a damaged row or page; once for each finding",
)  # fmt: skip
TOPIC_HAS_OTHER_PARTITIONS: Final = Notice(
    LOG, WARNING, "topic_has_other_partitions", ("topic", "partitions", "wanted"),
    "topic %(topic)s: it exists with %(partitions)d partitions, and stays so; create_topic(exist_ok=True) "
    "wanted %(wanted)d. `db.admin.create_partitions` adds partitions; it changes where keys go",
    "`create_topic` with `exist_ok` has found a topic with another number of partitions",
)  # fmt: skip
OLD_RECORDS: Final = Notice(
    LOG, WARNING, "old_records", ("topic", "retention_ms"),
    "topic %(topic)s: records arrive that are %(age_days).1f days old by their timestamps, and "
    "retention.ms=%(retention_ms)d keeps them for %(retention_days).1f days only, so the next housekeeping "
    "deletes them unless younger records precede them. If the timestamps are event times in ms, set "
    "retention.ms=-1 for the topic (`eosdb topics alter %(topic)s --config retention.ms=-1`).",
    "records arrive that are older than the topic's retention; once for each topic",
)  # fmt: skip
FUTURE_RECORDS: Final = Notice(
    LOG, WARNING, "future_records", ("topic",),
    "topic %(topic)s: a record's timestamp is %(days).1f days in the future, so retention and compaction "
    "count its age from its append. Correct the producer's clock or its unit, milliseconds.",
    "records arrive whose timestamps are more than an hour in the future; once for each topic",
)  # fmt: skip
SCHEDULED_LOST: Final = Notice(
    LOG, ERROR, "scheduled_lost", ("topic", "partition", "offsets"),
    "topic %(topic)s: the scheduled records at offsets %(offsets)s of partition %(partition)d are damaged "
    "or missing, so they were not delivered; `eosdb verify` shows what else is damaged. Restore a backup "
    "that has them",
    "scheduled records are due whose rows are damaged or missing",
)  # fmt: skip
SCHEDULED_DROPPED: Final = Notice(
    LOG, WARNING, "scheduled_dropped", ("topic", "records"),
    "topic %(topic)s is deleted, together with %(records)d scheduled records that were not due yet",
    "a topic with scheduled records is deleted",
)  # fmt: skip
HOUSEKEPT: Final = Notice(
    HOUSEKEEPING, INFO, "housekept",
    ("file", "expired_transactional_ids", "expired_producers", "expired_offsets", "deleted_records",
     "compacted_records", "expired_idempotency_keys", "expired_sinks", "trimmed_events", "freed_bytes"),
    "%(file)s: housekeeping: %(counts)s",
    "a round of housekeeping has deleted something",
)  # fmt: skip
HOUSEKEEPING_LATER: Final = Notice(
    HOUSEKEEPING, WARNING, "housekeeping_later", ("file", "error"),
    "%(file)s: housekeeping failed, and continues later: %(cause)s",
    "a round of housekeeping has failed; the next round continues",
)  # fmt: skip

# -- beside the file ----------------------------------------------------------------------------

CONNECTED: Final = Notice(
    WIRE, DEBUG, "connected", ("client_host",), "%(client_host)s has connected",
    "a client has connected",
)  # fmt: skip
DISCONNECTED: Final = Notice(
    WIRE, DEBUG, "disconnected", ("client_host",), "%(client_host)s has disconnected",
    "a client has closed its connection",
)  # fmt: skip
CONNECTION_BROKE: Final = Notice(
    WIRE, DEBUG, "connection_broke", ("client_host", "error"),
    "the connection from %(client_host)s broke: %(error_message)s", "a connection has broken",
)  # fmt: skip
CONNECTION_CLOSED: Final = Notice(
    WIRE, WARNING, "connection_closed", ("client_host", "error"),
    "closed the connection from %(client_host)s: %(error_message)s",
    "the server has closed a connection: a malformed request, a time-out, a refusal",
)  # fmt: skip
REFUSED_BY_FILE: Final = Notice(
    WIRE, WARNING, "refused_by_file", ("client_host", "error"),
    "closed the connection from %(client_host)s: the file has refused a request, so later ones are not "
    "carried out: %(cause)s",
    "the file was locked for too long, full or failing, or memory ran out; the server has closed the "
    "connection, so that nothing overtakes the request that was refused",
)  # fmt: skip
CONNECTION_FAILED: Final = Notice(
    WIRE, ERROR, "connection_failed", ("client_host",),
    "closed the connection from %(client_host)s: a request failed",
    "the server has closed a connection because of an error of its own, with its traceback",
)  # fmt: skip
REQUEST_FAILED: Final = Notice(
    WIRE, WARNING, "request_failed", ("api", "api_version", "error"),
    "%(api)s version %(api_version)d failed: %(error_message)s",
    "a request has failed with an error that its handler does not expect; the client got an error code",
)  # fmt: skip
LOGIN_REFUSED: Final = Notice(
    WIRE, WARNING, "login_refused", ("client_host", "error"),
    "refused a login from %(client_host)s: %(error_message)s", "a client has failed to log in",
)  # fmt: skip
CERTIFICATE_RENEWED: Final = Notice(
    WIRE, INFO, "certificate_renewed", ("file",), "%(file)s: new connections get the new certificate",
    "the server's certificate files have changed, and have been read",
)  # fmt: skip
CERTIFICATE_KEPT: Final = Notice(
    WIRE, WARNING, "certificate_kept", ("error",),
    "the changed certificate files are not valid, so the earlier certificate is kept: %(error_message)s",
    "the server's certificate files have changed, and are not valid; new connections get the earlier "
    "certificate",
)  # fmt: skip
TOO_MANY_CONNECTIONS: Final = Notice(
    WIRE, WARNING, "too_many_connections", ("connections",),
    "%(connections)d connections, further ones are closed at once",
    "the limit of connections is reached; the server has closed a new one; once, until there are fewer",
)  # fmt: skip
UNUSED_CONNECTIONS_CLOSED: Final = Notice(
    WIRE, WARNING, "unused_connections_closed", ("connections",),
    "%(connections)d connections; each further one closes the oldest connection without a login or, "
    "where no login is required, without a request",
    "the limit of connections is reached; the server has closed the oldest one without a login (or, where "
    "none is required, without a request) for a new one; once, until there are fewer",
)  # fmt: skip
CANNOT_ACCEPT: Final = Notice(
    WIRE, WARNING, "cannot_accept", ("error",),
    "cannot accept connections: %(error_message)s; trying again",
    "the system refuses connections to the server, which tries again",
)  # fmt: skip
SETTINGS_KEPT: Final = Notice(
    WIRE, INFO, "settings_kept", ("topic", "settings"),
    "topic %(topic)s: %(setting_names)s: kept, without effect in eosdb",
    "a client has given a topic settings of Kafka's that have no effect here",
)  # fmt: skip
RELAY_WAITS: Final = Notice(
    RELAY, WARNING, "relay_waits", ("relay", "error"),
    "relay %(relay)s: %(cause)s; trying again",
    "the source or the target of a relay is away, or has refused a request; the relay tries again, and "
    "logs this once until it makes progress",
)  # fmt: skip
RELAY_GAP: Final = Notice(
    RELAY, WARNING, "relay_gap", ("relay", "topic", "partition", "offset"),
    "relay %(relay)s: %(topic)s-%(partition)d: continued at offset %(offset)d instead of "
    "%(relayed_offset)d, as on_gap allows",
    "the source has deleted the next records, or a topic was recreated, and `on_gap` lets the relay "
    "continue at `offset`",
)  # fmt: skip
RELAY_TIMESTAMPS: Final = Notice(
    RELAY, WARNING, "relay_timestamps", ("relay", "topic"),
    "relay %(relay)s: %(target)s: topic %(topic)s has message.timestamp.type=LogAppendTime, so records "
    "get the time of their arrival; their own is not kept",
    "a topic of the target replaces the records' timestamps; once for each topic",
)  # fmt: skip
RELAY_DEAD_LETTER: Final = Notice(
    RELAY, WARNING, "relay_dead_letter",
    ("relay", "topic", "partition", "offset", "dead_letter_topic"),
    "relay %(relay)s: offset %(offset)d of %(topic)s-%(partition)d is too large for %(target)s, and goes "
    "to %(dead_letter_topic)s",
    "a record is larger than its topic in the target allows, and goes to the dead letter topic there",
)  # fmt: skip
FILE_LEFT_OUT: Final = Notice(
    SPARK, WARNING, "file_left_out", ("file",), "%(file)s is left out: %(cause)s",
    "a query of several files does not read this file",
)  # fmt: skip
REST_LEFT_OUT: Final = Notice(
    SPARK, WARNING, "file_left_out", ("file",),
    "%(file)s: the rest of it is left out: %(cause)s",
    "a query of several files stops reading this file part of the way",
)  # fmt: skip
LOSS_ACCEPTED: Final = Notice(
    SPARK, WARNING, "loss_accepted", (),
    "%(loss)s. Continuing with the remaining records: failOnDataLoss=false",
    "data that a query was to read is gone; failOnDataLoss=false",
)  # fmt: skip
RECORDS_LOST: Final = Notice(
    SPARK, WARNING, "loss_accepted", (),
    "%(file)s, %(topic_partition)s: the planned offsets %(first)d to %(last)d were deleted before they "
    "were read. Continuing with the remaining records: failOnDataLoss=false%(advice)s",
    "records were deleted between the planning of a query and its reading; failOnDataLoss=false",
)  # fmt: skip
OFFSETS_NOT_NOTED: Final = Notice(
    SPARK, WARNING, "offsets_not_noted", ("file", "group_id"),
    "group %(group_id)s: the query's progress cannot be committed in %(files)s: %(cause)s. The query "
    "continues, and tries again every minute",
    "a query's progress could not be committed to its group; the query continues",
)  # fmt: skip
BATCH_LEFT_OUT: Final = Notice(
    SPARK, WARNING, "batch_left_out", ("file",), "%(file)s: %(cause)s",
    "a write has appended none of its rows: its batch is in the file already, or a newer run is",
)  # fmt: skip

CATALOG: Final[tuple[Notice, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Notice)
)
