"""No text of a request, however long, makes an answer that cannot be sent or read: an error that quotes it
is shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

import eosdb
from eosdb import Acl, OffsetAndMetadata, TopicPartition
from eosdb.errors import ApiError
from eosdb.wire.handlers import APIS
from tests.wire import every_api
from tests.wire.every_api import TABLE, Row
from tests.wire.peer import Peer

pytestmark = pytest.mark.slow

LONGEST = 32_767
"""In bytes: a string of Kafka's protocol."""
LONG = "\x01" * LONGEST
"""As long as it may be; an error that quotes it with `repr` has four times its characters."""
ROWS = [it for it in TABLE if it.request not in (SaslHandshakeRequest, SaslAuthenticateRequest)]


def texts(message: Any) -> Iterator[tuple[Callable[[Any], None], str]]:
    """Every text in the message, and what sets another in its place."""
    for name in message.fields:
        value = getattr(message, name)
        if isinstance(value, str):
            yield partial(setattr, message, name), value
        for index, element in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(element, str) and isinstance(value, list):
                yield partial(value.__setitem__, index), element
            elif hasattr(element, "fields") and not isinstance(element, UUID):
                yield from texts(element)


def versions(row: Row) -> set[int]:
    """The row's, and the newest whose texts have two bytes for their length."""
    api = APIS[row.request.API_KEY]
    fixed = [it for it in range(api.lowest, row.version) if not row.request.flexible_version_q(it)]
    return {row.version, *fixed[-1:]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_request_with_the_longest_text_anywhere_is_answered(row: Row, tmp_path: Path) -> None:
    with eosdb.connect(tmp_path / "shop.db", durability="off") as db:
        identity = every_api.prepare(db)
        places = len(list(texts(row.make(identity))))
        with db.serve() as server, Peer(server) as peer:
            for version in versions(row):
                for place in range(places):
                    request: ApiMessage = deepcopy(row.make(identity))
                    list(texts(request))[place][0](LONG)
                    answer = peer.ask(request, version)
                    assert all(len(text.encode()) <= LONGEST for _, text in texts(answer))


def test_a_name_that_clients_could_not_be_told_is_refused(tmp_path: Path) -> None:
    lists = {"ListGroups", "ListTransactions", "DescribeUserScramCredentials"}
    with eosdb.connect(tmp_path / "shop.db", durability="off") as db:
        identity = every_api.prepare(db)
        place = {TopicPartition(every_api.TOPIC, 0): OffsetAndMetadata(0)}
        protocols = [("range", b"")]
        given: list[Callable[[str], object]] = [
            lambda it: db.broker.offset_commit(it, place),
            lambda it: db.broker.init_producer_id(it),
            lambda it: db.admin.set_password(it, "secret"),
            lambda it: db.broker.join_group("g", client_id=it, protocols=protocols),
            lambda it: db.broker.join_group("h", group_instance_id=it, protocols=protocols),
            lambda it: db.admin.create_acls([Acl(it, "read", "topic", "t", permission="deny")]),
            lambda it: db.admin.create_acls([Acl("User:a", "all", "topic", it)]),
        ]
        for give in given:
            with pytest.raises(ApiError, match=r"expected at most 32767 bytes of UTF-8"):
                give(LONG + "x")
        for give in given[:5]:
            give(LONG)
        with db.serve() as server, Peer(server) as peer:
            for row in (row for row in TABLE if row.name in lists):
                answer = peer.ask(row.make(identity), row.version)
                assert LONG in [text for _, text in texts(answer)], row.name
