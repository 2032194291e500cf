"""`Admin`: all that operators ask, one part for each subject (Kafka: the Admin client; decisions/0084)."""

from __future__ import annotations

from eosdb.admin.access import AccessAdmin
from eosdb.admin.groups import GroupAdmin
from eosdb.admin.log import LogAdmin
from eosdb.admin.topics import TopicAdmin
from eosdb.admin.transactions import TransactionAdmin


class Admin(TopicAdmin, TransactionAdmin, GroupAdmin, LogAdmin, AccessAdmin):
    """Administration of topics, typed views, groups, transactions, the log and access control. Each call is
    atomic and durable when it returns."""
