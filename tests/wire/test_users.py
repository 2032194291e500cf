"""Users administered from afar, as kafka-configs.sh does it."""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)

import eosdb
from eosdb.admin.tools import Tools
from eosdb.model.protocol import scram
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
UNSUPPORTED, NOT_FOUND, DUPLICATE, UNACCEPTABLE, CLUSTER = 33, 91, 92, 93, 31


kafka_admin: Any = confluent_kafka.admin
"""Not all that it has is in its stubs."""


def put(
    name: str, mechanism: int = 1, *, iterations: int = 4096, password: bytes = b"salted"
) -> _Upsertion:
    return _Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=password,
    )


def alter(
    peer: Peer, upsertions: list[_Upsertion], deletions: list[_Deletion] | None = None
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(deletions=deletions or [], upsertions=upsertions)
    return {result.user: result.error_code for result in peer.ask(request, 0).results}


def describe(peer: Peer, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    user = DescribeUserScramCredentialsRequest.UserName
    request = DescribeUserScramCredentialsRequest(users=[user(name=n) for n in names] or None)
    answer = peer.ask(request, 0)
    assert answer.error_code == 0
    return {
        found.user: (
            found.error_code,
            [(c.mechanism, c.iterations) for c in found.credential_infos],
        )
        for found in answer.results
    }


def test_librdkafka_gives_a_user_a_password_and_takes_it_away(
    db: eosdb.Database, server: Server
) -> None:
    admin = kafka_admin.AdminClient({"bootstrap.servers": server.bootstrap_servers})
    sha512 = kafka_admin.ScramMechanism.SCRAM_SHA_512
    info = kafka_admin.ScramCredentialInfo(sha512, 8192)
    added = kafka_admin.UserScramCredentialUpsertion("alice", info, b"secret")
    admin.alter_user_scram_credentials([added])["alice"].result(PATIENCE_S)
    (credential,) = Tools(db.admin).list_credentials()
    assert (credential.user, credential.mechanism, credential.iterations) == (
        "alice",
        "SCRAM-SHA-512",
        8192,
    )
    assert scram.is_password(credential, "secret")
    found = admin.describe_user_scram_credentials(["alice"])["alice"].result(PATIENCE_S)
    assert [(c.mechanism, c.iterations) for c in found.scram_credential_infos] == [(sha512, 8192)]
    removed = kafka_admin.UserScramCredentialDeletion("alice", sha512)
    admin.alter_user_scram_credentials([removed])["alice"].result(PATIENCE_S)
    assert Tools(db.admin).list_credentials() == []


def test_users_are_described_all_or_by_name(peer: Peer) -> None:
    assert describe(peer) == {}
    assert alter(peer, [put("alice"), put("alice", 2), put("bob", iterations=8192)]) == {
        "alice": 0,
        "bob": 0,
    }
    everybody = {"alice": (0, [(1, 4096), (2, 4096)]), "bob": (0, [(1, 8192)])}
    assert describe(peer) == everybody
    assert describe(peer, "bob", "nobody") == {"bob": everybody["bob"], "nobody": (NOT_FOUND, [])}
    assert describe(peer, "bob", "bob") == {"bob": (DUPLICATE, [])}


@each(
    ("upsertion", "code"),
    [
        (put(""), UNACCEPTABLE),
        (put("alice", iterations=4095), UNACCEPTABLE),
        (put("alice", iterations=16385), UNACCEPTABLE),
        (put("alice", 0), UNSUPPORTED),
        (put("alice", 3), UNSUPPORTED),
    ],
)
def test_each_user_has_an_answer_of_its_own(peer: Peer, upsertion: _Upsertion, code: int) -> None:
    assert alter(peer, [upsertion, put("bob")]) == {upsertion.name: code, "bob": 0}
    assert describe(peer) == {"bob": (0, [(1, 4096)])}


def test_what_is_not_there_is_not_deleted_and_nothing_is_changed_twice(peer: Peer) -> None:
    alter(peer, [put("alice")])
    gone = [_Deletion(name="bob", mechanism=1), _Deletion(name="alice", mechanism=2)]
    assert alter(peer, [], gone) == {"bob": NOT_FOUND, "alice": NOT_FOUND}
    twice = [_Deletion(name="alice", mechanism=1)]
    assert alter(peer, [put("alice")], twice) == {"alice": DUPLICATE}
    assert describe(peer) == {"alice": (0, [(1, 4096)])}
    assert alter(peer, [put("alice", 2)], twice) == {"alice": 0}
    assert describe(peer) == {"alice": (0, [(2, 4096)])}
