"""Users of the server: what is stored of a password, and who may change it."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb.admin.tools import Tools
from eosdb.model.protocol import scram
from tests.cases import each

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_the_keys_are_those_of_the_standard() -> None:
    """The example of RFC 7677."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salted_password("SCRAM-SHA-256", "pencil", salt, 4096)
    made = scram.credential("user", "SCRAM-SHA-256", 4096, salt, salted)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert scram.is_proof(made, proof, message)
    assert not scram.is_proof(made, proof, message + b"x")
    assert not scram.is_proof(made, proof[:-1], message)
    signature = base64.b64encode(scram.server_signature(made, message))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_file_has_keys_of_a_password_and_not_the_password(
    db: eosdb.Database, db_path: Path
) -> None:
    db.admin.set_password("alice", "correct horse")
    db.close()
    content = db_path.read_bytes()
    assert b"alice" in content
    assert b"correct horse" not in content
    assert base64.b64encode(b"correct horse") not in content


def test_a_user_has_a_password_for_each_mechanism(db: eosdb.Database) -> None:
    db.admin.set_password("alice", "one")
    first = Tools(db.admin).list_credentials()
    assert [(c.user, c.mechanism) for c in first] == [("alice", name) for name in BOTH]
    assert all(scram.is_password(c, "one") and not scram.is_password(c, "two") for c in first)
    db.admin.set_password("alice", "two", ["SCRAM-SHA-512"])
    assert [scram.is_password(c, "two") for c in Tools(db.admin).list_credentials()] == [
        False,
        True,
    ]
    db.admin.remove_user("alice", "SCRAM-SHA-256")
    assert [c.mechanism for c in Tools(db.admin).list_credentials()] == ["SCRAM-SHA-512"]
    db.admin.remove_user("alice")
    assert Tools(db.admin).list_credentials() == []
    with pytest.raises(eosdb.ResourceNotFoundError, match="no password is stored for 'alice'"):
        db.admin.remove_user("alice")
    assert db.verify().ok


def test_two_users_with_one_password_have_other_keys(db: eosdb.Database) -> None:
    db.admin.set_password("alice", "secret")
    db.admin.set_password("bob", "secret")
    found = Tools(db.admin).list_credentials()
    assert len({c.salt for c in found}) == len({c.stored_key for c in found}) == 4


def test_an_altered_key_is_found_and_rebuilt_from_the_events(
    db: eosdb.Database, db_path: Path
) -> None:
    db.admin.set_password("alice", "secret")
    before = Tools(db.admin).list_credentials()
    with sqlite3.connect(db_path) as raw:
        raw.execute("UPDATE eosdb_scram_credentials SET stored_key = server_key")
    raw.close()
    assert any("eosdb_scram_credentials" in problem for problem in db.verify().problems)
    db.rebuild()
    assert Tools(db.admin).list_credentials() == before


def test_a_restored_copy_has_the_users_of_its_time(db: eosdb.Database, tmp_path: Path) -> None:
    db.admin.set_password("alice", "secret")
    ((position,),) = db.query("SELECT max(position) FROM journal").rows
    db.admin.remove_user("alice")
    db.restore_to(tmp_path / "before.db", position)
    with eosdb.connect(tmp_path / "before.db") as before:
        assert [c.user for c in Tools(before.admin).list_credentials()] == ["alice", "alice"]


@each(
    ("user", "password", "mechanisms", "error"),
    [
        ("", "secret", BOTH, eosdb.UnacceptableCredentialError),
        ("alice", "", BOTH, eosdb.UnacceptableCredentialError),
        ("alice", "a\ud800", BOTH, eosdb.UnacceptableCredentialError),
        ("alice", "secret", ["PLAIN"], eosdb.UnsupportedSaslMechanismError),
        ("alice", "secret", [*BOTH, "scram-sha-256"], eosdb.UnsupportedSaslMechanismError),
    ],
)
def test_what_cannot_be_stored_is_refused_as_a_whole(
    db: eosdb.Database,
    user: str,
    password: str,
    mechanisms: list[str],
    error: type[eosdb.ApiError],
) -> None:
    with pytest.raises(error):
        db.admin.set_password(user, password, mechanisms)
    assert Tools(db.admin).list_credentials() == []


@pytest.mark.parametrize("iterations", [0, 4_095, 16_385])
def test_keys_made_with_too_few_or_too_many_iterations_are_refused(
    db: eosdb.Database, iterations: int
) -> None:
    made = scram.credential("alice", "SCRAM-SHA-256", iterations, b"salt", b"salted")
    with pytest.raises(eosdb.UnacceptableCredentialError, match="from 4096 to 16384"):
        Tools(db.admin).put_credential(made)
