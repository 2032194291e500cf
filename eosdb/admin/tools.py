"""What the server, the commands, Spark and the integrations ask of a file beyond `Admin`. No part of the
public API: it may change in any release."""

from __future__ import annotations

from typing import Final

from eosdb.admin import access, consistent_cut, groups, log, topics, transactions
from eosdb.admin.admin import Admin
from eosdb.broker.core import face


class Tools:
    """These requests, with the rights of the `Admin`."""

    def __init__(self, admin: Admin) -> None:
        self._core: Final = admin._core

    topic_config = face(topics.topic_config)
    change_topic_config = face(topics.change_topic_config)
    list_group_configs = face(groups.list_group_configs)
    put_credential = face(access.put_credential)
    list_credentials = face(access.list_credentials)
    log_directory = face(log.log_directory)
    first_record_at = face(log.first_record_at)
    history_mark = face(log.history_mark)
    history_departure = face(log.history_departure)
    transactions_in = face(consistent_cut.transactions_in)
    journal_position = face(transactions.journal_position)
