"""Sends frames, and looks after each whether what must hold does."""

from __future__ import annotations

import socket
import struct
from random import Random
from typing import Any, Final

from eosdb.wire.borrowed import response_of
from eosdb.wire.handlers import APIS
from eosdb.wire.messages import API_VERSIONS
from tests.wire.fuzz import bodies
from tests.wire.fuzz.batches import changed, mutated
from tests.wire.fuzz.target import Target
from tests.wire.raw import header

MOST_BYTES: Final = 900_000_000
"""What the server's memory may grow by: four times what all requests share, and one request."""
_PATIENCE_S: Final = 120.0
_MAY_WAIT: Final = {struct.pack(">h", key) for key in (1, 11, 14)}
"""Fetch, JoinGroup, and SyncGroup wait as long as the client has asked for."""
_WAITS_S: Final = 0.3


class FoundSomething(AssertionError):
    """A frame did what none may do."""


class Hunt:
    """A good client that asks after every frame, and one that sends them."""

    def __init__(self, target: Target, recorded: list[bytes]) -> None:
        self._target = target
        self._recorded = recorded
        self._good = self._connect()
        self._bad = self._connect()
        self._seen = 0
        self.sent = 0
        self.answered = 0

    def __enter__(self) -> Hunt:
        return self

    def __exit__(self, *_: object) -> None:
        self._good.close()
        self._bad.close()

    def one(self, random: Random) -> None:
        """One frame of whatever kind."""
        kinds = (
            self.valid,
            self.lying,
            self.lying,
            self.mutated,
            self.mutated,
            self.batch,
            self.raw,
        )
        random.choice(kinds)(random)

    def valid(self, random: Random) -> None:
        self.send(bodies.any_request(random))

    def lying(self, random: Random) -> None:
        self.send(bodies.any_request(random, lies=random.choice((0.02, 0.1, 0.3))))

    def mutated(self, random: Random) -> None:
        frame = random.choice(self._recorded)
        head = 8 if random.random() < 0.8 else 0
        self.send(frame[:head] + mutated(random, frame[head:]))

    def batch(self, random: Random) -> None:
        """A produce request with a batch that is changed inside; those that were recorded, too."""
        api = APIS[0]
        frame = random.choice([r for r in self._recorded if r[:2] == b"\0\0"])
        at = _batch_in(frame)
        if at is None or random.random() < 0.5:
            self.send(bodies.request(random, api, random.randint(3, api.highest)))
            return
        begin, end = at
        made = changed(random, frame[begin:end])
        if (
            begin < 4 or len(made) != end - begin
        ):  # Its length stands before it, of fixed size or not.
            made = (made + bytes(end - begin))[: end - begin]
        self.send(frame[:begin] + made + frame[end:])

    def raw(self, random: Random) -> None:
        """Anything; its size may be a lie, and the rest of the frame not come."""
        content = random.randbytes(random.choice((0, 1, 7, 8, 40, 1_000)))
        if random.random() < 0.5:
            keys = struct.pack(">hh", random.choice(list(APIS)), random.randint(-1, 14))
            content = keys + content
        if random.random() < 0.5:
            self.send(content)
            return
        size = random.choice((len(content) + 5, -1, 2**31 - 1, 104_857_600))
        self._bad.sendall(struct.pack(">i", size) + content)
        self._renew()
        self.sent += 1
        self._check(content)

    def send(self, frame: bytes) -> None:
        """A frame with its true size, and a good one behind it, which has an answer in any case."""
        self.sent += 1
        may_wait = frame[:2] in _MAY_WAIT
        self._bad.settimeout(_WAITS_S if may_wait else _PATIENCE_S)
        try:
            self._bad.sendall(struct.pack(">i", len(frame)) + frame + _GOOD)
            answer = _answer(self._bad)
            if answer is not None and answer[:4] != _GOOD_ID:
                self.answered += 1
                _check_answer(frame, answer)
                answer = _answer(self._bad)
        except TimeoutError:
            if not may_wait:
                raise FoundSomething(f"no answer to {frame.hex()}") from None
            answer = None
        except ConnectionError:
            answer = None
        if answer is None:
            self._renew()
        elif answer[:4] != _GOOD_ID:
            raise FoundSomething(f"more than one answer to {frame.hex()}: {answer.hex()}")
        self._check(frame)

    def _check(self, sent: bytes) -> None:
        if not self._target.is_running():
            raise FoundSomething(f"the server crashed on {sent[:4_000].hex()}")
        self._good.sendall(_GOOD)
        if (answer := _answer(self._good)) is None or answer[:4] != _GOOD_ID:
            raise FoundSomething(f"the good client got {answer!r} after {sent[:4_000].hex()}")
        grown = self._target.resident_bytes() - self._target.first_bytes
        if grown > MOST_BYTES:
            raise FoundSomething(f"memory grew by {grown} bytes on {sent[:4_000].hex()}")
        new = self._target.log(self._seen)
        self._seen += len(new)
        if b"Traceback" in new or b"ERROR" in new:
            raise FoundSomething(f"{sent[:4_000].hex()}\n{new.decode()}")

    def _renew(self) -> None:
        self._bad.close()
        self._bad = self._connect()

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._target.port), timeout=_PATIENCE_S)


def _answer(sock: socket.socket) -> bytes | None:
    size = _exactly(sock, 4)
    return None if size is None else _exactly(sock, struct.unpack(">i", size)[0])


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def _check_answer(frame: bytes, answer: bytes) -> None:
    """The answer is whole, and one to this request."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    if answer[:4] != struct.pack(">i", correlation_id):
        raise FoundSomething(f"another's answer {answer.hex()} to {frame.hex()}")
    api = APIS[key]
    if key == API_VERSIONS and not api.lowest <= version <= api.highest:
        version = 0
    response: Any = response_of(key)
    flexible = response.flexible_version_q(version)
    begin = 5 if flexible and key != API_VERSIONS else 4
    decode = response._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response
    )
    try:
        _, end = decode(memoryview(answer), begin)
    except Exception as error:
        raise FoundSomething(f"bad answer {answer.hex()} to {frame.hex()}: {error!r}") from error
    if end != len(answer):
        raise FoundSomething(
            f"an answer of {end} bytes in {len(answer)}: {answer.hex()} to {frame.hex()}"
        )


def _batch_in(frame: bytes) -> tuple[int, int] | None:
    """Where a recorded produce request has its batch: by its magic, and the length that it says itself."""
    for at in range(8, len(frame) - 61):
        if frame[at + 16] == 2 and frame[at : at + 8] == bytes(8):
            end: int = at + 12 + struct.unpack_from(">i", frame, at + 8)[0]
            if at + 61 <= end <= len(frame):
                return at, end
    return None


_GOOD_ID: Final = b"good"
_content = header(API_VERSIONS, 0, *struct.unpack(">i", _GOOD_ID))
_GOOD: Final = struct.pack(">i", len(_content)) + _content
