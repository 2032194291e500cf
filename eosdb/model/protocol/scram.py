"""SCRAM credentials (RFC 5802): their stored form, and the verification of a proof.

As in Kafka (ScramCredential, ScramFormatter), the file stores a salt and two keys, which a slow hash
derives from the password. It does not store the password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, NamedTuple

from eosdb.model.damage import reads

MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Kafka's names of the mechanisms, and their hash functions."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limit (ScramMechanism, ScramControlManager)."""
SALT_BYTES: Final = 16


class ScramCredential(NamedTuple):
    """The stored credential of a user; the last three fields are bytes in base64."""

    user: str
    mechanism: str
    iterations: int
    salt: str
    stored_key: str
    server_key: str


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash the password as it is, without SASLprep, as Kafka does (ScramFormatter.normalize)."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential(
    user: str, mechanism: str, iterations: int, salt: bytes, salted: bytes
) -> ScramCredential:
    """Build a credential from the salted password, which AlterUserScramCredentials contains."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(MECHANISMS[mechanism], client_key).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    texts = (base64.b64encode(value).decode() for value in (salt, stored_key, server_key))
    return ScramCredential(user, mechanism, iterations, *texts)


@reads("SCRAM credentials")
def is_proof(of: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Whether the proof shows that the client knows the password."""
    stored_key = base64.b64decode(of.stored_key)
    signature = _hmac(of.mechanism, stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    key_hash = hashlib.new(MECHANISMS[of.mechanism], client_key).digest()
    return hmac.compare_digest(key_hash, stored_key)


@reads("SCRAM credentials")
def server_signature(of: ScramCredential, auth_message: bytes) -> bytes:
    """Return the signature by which the server proves that it knows the keys."""
    return _hmac(of.mechanism, base64.b64decode(of.server_key), auth_message)


@reads("SCRAM credentials")
def is_password(of: ScramCredential, password: str) -> bool:
    """Whether the keys are derived from this password."""
    salt = base64.b64decode(of.salt)
    salted = salted_password(of.mechanism, password, salt, of.iterations)
    derived = credential(of.user, of.mechanism, of.iterations, salt, salted)
    return hmac.compare_digest(derived.stored_key, of.stored_key)


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, MECHANISMS[mechanism])
