"""SCRAM credentials (RFC 5802): what is kept of a password, and how a proof of it is checked.

The file has the salt and two keys that are made of the password by a slow hash, as Kafka keeps them
(ScramCredential, ScramFormatter). The password itself is neither kept nor found from them but by trying.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, NamedTuple

from eosdb.model.damage import reads

MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Kafka's names, and those of their hashes."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""What Kafka allows (ScramMechanism, ScramControlManager)."""
SALT_BYTES: Final = 16


class ScramCredential(NamedTuple):
    """What the file knows of one user's password; the last three are bytes in base64."""

    user: str
    mechanism: str
    iterations: int
    salt: str
    stored_key: str
    server_key: str


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Kafka takes the password as it is, without SASLprep (ScramFormatter.normalize)."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential(
    user: str, mechanism: str, iterations: int, salt: bytes, salted: bytes
) -> ScramCredential:
    """From the salted password, which is what AlterUserScramCredentials carries."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(MECHANISMS[mechanism], client_key).digest()
    server_key = _hmac(mechanism, salted, b"Server Key")
    texts = (base64.b64encode(value).decode() for value in (salt, stored_key, server_key))
    return ScramCredential(user, mechanism, iterations, *texts)


@reads("SCRAM credentials")
def is_proof(of: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Whether whoever made the proof knows the password."""
    stored_key = base64.b64decode(of.stored_key)
    signature = _hmac(of.mechanism, stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    found = hashlib.new(MECHANISMS[of.mechanism], client_key).digest()
    return hmac.compare_digest(found, stored_key)


@reads("SCRAM credentials")
def server_signature(of: ScramCredential, auth_message: bytes) -> bytes:
    """The proof that the server knows the keys, too."""
    return _hmac(of.mechanism, base64.b64decode(of.server_key), auth_message)


@reads("SCRAM credentials")
def is_password(of: ScramCredential, password: str) -> bool:
    """Whether the keys are made of this password."""
    salt = base64.b64decode(of.salt)
    salted = salted_password(of.mechanism, password, salt, of.iterations)
    made = credential(of.user, of.mechanism, of.iterations, salt, salted)
    return hmac.compare_digest(made.stored_key, of.stored_key)


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, MECHANISMS[mechanism])
