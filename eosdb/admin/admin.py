"""`Admin`: all that operators ask (Kafka: the Admin client). Each method is a function of the file of its
subject, which takes the core first (decisions/0084)."""

from __future__ import annotations

from typing import Final

from eosdb.admin import (
    access,
    consistent_cut,
    diagnosis,
    groups,
    log,
    overview,
    storage,
    topics,
    transactions,
)
from eosdb.broker.core import Core, face


class Admin:
    """Administration of topics, typed views, groups, transactions, the log and access control. Each call is
    atomic and durable when it returns."""

    def __init__(self, core: Core) -> None:
        self._core: Final = core

    create_topic = face(topics.create_topic)
    create_partitions = face(topics.create_partitions)
    alter_topic_config = face(topics.alter_topic_config)
    delete_topic = face(topics.delete_topic)
    list_topics = face(topics.list_topics)
    describe_topic = face(topics.describe_topic)
    describe_topic_config = face(topics.describe_topic_config)
    describe_broker_config = face(topics.describe_broker_config)
    create_view = face(topics.create_view)
    list_views = face(topics.list_views)
    drop_view = face(topics.drop_view)
    list_scheduled = face(topics.list_scheduled)
    cancel_scheduled = face(topics.cancel_scheduled)

    create_acls = face(access.create_acls)
    list_acls = face(access.list_acls)
    delete_acls = face(access.delete_acls)
    set_password = face(access.set_password)
    remove_user = face(access.remove_user)

    describe_group_offsets = face(groups.describe_group_offsets)
    describe_group_config = face(groups.describe_group_config)
    alter_group_config = face(groups.alter_group_config)
    reset_offsets = face(groups.reset_offsets)

    partition_offsets = face(log.partition_offsets)
    scan = face(log.scan)
    read_blocks = face(log.read_blocks)
    dump_log = face(log.dump_log)
    list_snapshots = face(log.list_snapshots)
    describe_snapshot = face(log.describe_snapshot)

    overview = face(overview.overview)
    stats = face(storage.stats)
    timeline = face(log.timeline)
    consistent_cut = face(consistent_cut.consistent_cut)

    open_transactions = face(transactions.open_transactions)
    find_hanging_transactions = face(transactions.find_hanging_transactions)
    diagnose = face(diagnosis.diagnose)
    fence_producer = face(transactions.fence_producer)
    abort_transaction = face(transactions.abort_transaction)
    transaction_history = face(transactions.transaction_history)
    journal = face(transactions.journal)
