"""Every field of a SCRAM exchange is looked at: whatever is altered, with a proof that fits, is refused.

The proof is made over the messages as they are sent, so that it hides nothing. From RFC 5802.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from eosdb.errors import SaslAuthenticationFailedError
from eosdb.model.protocol import scram
from eosdb.model.protocol.scram import ScramCredential
from eosdb.wire import login
from tests.cases import each

USER, PASSWORD, NONCE = "alice", "secret", "abcDEF0123"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def stored(mechanism: str, user: str = USER, password: str = PASSWORD) -> ScramCredential:
    salt = b"salt of " + user.encode()
    salted = scram.salted_password(mechanism, password, salt, 4_096)
    return scram.credential(user, mechanism, 4_096, salt, salted)


def find(user: str, mechanism: str) -> ScramCredential | None:
    passwords = {USER: PASSWORD, "bob": "other"}
    return stored(mechanism, user, passwords[user]) if user in passwords else None


@dataclass(frozen=True)
class Said:
    """What a client says; by default what is right. `{…}` of the last message are the server's."""

    header: str = "n,,"
    user: str = USER
    nonce: str = NONCE
    after_first: str = ""
    binding: str = "n,,"
    last_nonce: Callable[[str], str] = lambda nonce: nonce
    after_last: str = ""
    salt: Callable[[bytes], bytes] = lambda salt: salt
    rounds: Callable[[int], int] = lambda rounds: rounds
    password: str = PASSWORD
    key: bytes = b"Client Key"
    proof: Callable[[bytes], bytes] = lambda proof: proof


def exchange(mechanism: str, said: Said) -> tuple[bytes, bytes, str]:
    """The signature that the server gives, the one that it should, and who it takes the client for."""
    hashed = HASHES[mechanism]
    server = login.begin(mechanism, login.Users(find))
    bare = f"n={said.user},r={said.nonce}{said.after_first}"
    challenge = server.send(f"{said.header}{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    assert fields["r"].startswith(said.nonce)
    assert len(fields["r"]) > len(said.nonce) + 16
    salted = hashlib.pbkdf2_hmac(
        hashed,
        said.password.encode(),
        said.salt(base64.b64decode(fields["s"])),
        said.rounds(int(fields["i"])),
    )
    binding = base64.b64encode(said.binding.encode()).decode()
    content = f"c={binding},r={said.last_nonce(fields['r'])}{said.after_last}"
    message = f"{bare},{challenge},{content}".encode()
    client_key = hmac.digest(salted, said.key, hashed)
    signature = hmac.digest(hashlib.new(hashed, client_key).digest(), message, hashed)
    proof = said.proof(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hashed), message, hashed)
    try:
        server.send(f"{content},p={base64.b64encode(proof).decode()}".encode())
    except StopIteration as end:
        answer, user = end.value
        return answer, b"v=" + base64.b64encode(expected), user
    raise AssertionError("the exchange goes on")


GOOD = {
    "as it should be": Said(),
    "a client that could bind a channel": Said(header="y,,", binding="y,,"),
    "for itself": Said(header=f"n,a={USER},", binding=f"n,a={USER},"),
    "an extension": Said(after_first=",x=1", after_last=",x=2"),
}
ALTERED = {
    "another nonce in the end": Said(last_nonce=lambda nonce: "x" + nonce),
    "the client's nonce alone": Said(last_nonce=lambda _: NONCE),
    "the server's nonce altered": Said(last_nonce=lambda nonce: nonce[:-1] + "!"),
    "another case": Said(last_nonce=str.swapcase),
    "another channel binding": Said(binding="y,,"),
    "a channel binding that was not offered": Said(binding="p=tls-unique,,"),
    "no channel binding": Said(binding="n"),
    "somebody else in the binding": Said(binding="n,a=bob,"),
    "somebody else's place": Said(header="n,a=bob,", binding="n,a=bob,"),
    "another user": Said(user="bob"),
    "nobody": Said(user="carol"),
    "another salt": Said(salt=lambda salt: salt + b"!"),
    "fewer rounds": Said(rounds=lambda rounds: rounds - 1),
    "another password": Said(password="Secret"),
    "the server's key": Said(key=b"Server Key"),
    "a proof altered": Said(proof=lambda proof: bytes([proof[0] ^ 1]) + proof[1:]),
    "a proof cut off": Said(proof=lambda proof: proof[:-1]),
    "a proof of zeros": Said(proof=lambda proof: bytes(len(proof))),
}


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("case", GOOD)
def test_who_says_what_is_right_gets_in_and_knows_the_server(mechanism: str, case: str) -> None:
    given, expected, user = exchange(mechanism, GOOD[case])
    assert (given, user) == (expected, USER)


@each("mechanism", HASHES)
@each("case", ALTERED)
def test_whatever_is_altered_nobody_gets_in(mechanism: str, case: str) -> None:
    with pytest.raises(SaslAuthenticationFailedError):
        exchange(mechanism, ALTERED[case])


FIRST = (
    b"", b"\xff\xfe", b"n,,", b"n,,n=a", b"n,,n=,r=abc", b"n,,n=a=b,r=abc", b"p=tls-unique,,n=a,r=abc",
    b"n,a=bob,n=alice,r=abc", b"n,,r=abc,n=a", b"\0" * 1000,
)  # fmt: skip
PLAIN = (b"", b"alice", b"\0alice", b"\0a\0b\0c", b"\0\xff\0b", b"\0\0")


@each(
    ("mechanism", "message"),
    [*(("SCRAM-SHA-256", one) for one in FIRST), *(("PLAIN", one) for one in PLAIN)],
)
def test_what_is_no_first_message_is_a_failed_login(mechanism: str, message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailedError):
        login.begin(mechanism, login.Users(find)).send(message)


@each("last", [b"", b"\xff", b"c=biws", b"c=biws,r={}", b"c=biws,r={},p=!", b"c=biws,r={},p=YQ"])
def test_what_is_no_last_message_is_a_failed_login(last: bytes) -> None:
    server = login.begin("SCRAM-SHA-256", login.Users(find))
    challenge = server.send(f"n,,n={USER},r={NONCE}".encode())
    nonce = challenge.partition(b",")[0].removeprefix(b"r=")
    with pytest.raises(SaslAuthenticationFailedError):
        server.send(last.replace(b"{}", nonce))


def test_every_field_is_altered_by_a_case() -> None:
    """One that is added to the exchange needs one, too. An extension is anybody's to add."""
    right = Said()
    altered = {
        name
        for said in ALTERED.values()
        for name in vars(right)
        if getattr(said, name) is not getattr(right, name)
    }
    assert altered == set(vars(right)) - {"nonce", "after_first", "after_last"}


def test_the_server_never_says_the_same_nonce_twice() -> None:
    challenges = set()
    for _ in range(5):
        server = login.begin("SCRAM-SHA-256", login.Users(find))
        challenges.add(server.send(f"n,,n={USER},r={NONCE}".encode()))
    assert len(challenges) == 5


def test_a_nonce_is_what_the_client_has_said() -> None:
    other = replace(Said(), nonce="another")
    given, expected, _ = exchange("SCRAM-SHA-256", other)
    assert given == expected
