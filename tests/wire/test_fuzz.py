"""Whatever a stranger sends: an answer of Kafka's or a closed connection, and the server goes on.

Every test ends with a look at the server (tests/wire/fuzz/hunt.py): it answers a good client, its memory
stays within the bound, its log has no exception, and its file is in order in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eosdb.wire.apis import Api
from eosdb.wire.handlers import APIS
from tests.cases import each
from tests.wire.fuzz import bodies
from tests.wire.fuzz.hunt import Hunt
from tests.wire.fuzz.recording import CODECS, record
from tests.wire.fuzz.target import Target

pytestmark = [pytest.mark.process, pytest.mark.slow]

fuzzed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
randoms = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("fuzzed")) as running:
        yield running
        assert running.end() == 0, running.log()[-4_000:]


@pytest.fixture(scope="module")
def hunt(target: Target, recorded: list[bytes]) -> Iterator[Hunt]:
    with Hunt(target, recorded) as made:
        yield made
        assert made.answered > made.sent // 10, "most frames are refused, but not nearly all"


def test_the_recorded_frames_are_those_of_real_clients(recorded: list[bytes]) -> None:
    clients = (b"rdkafka", b"aiokafka", b"kafka-python")
    assert [name for name in clients if not any(name in frame for frame in recorded)] == []
    keys = {int.from_bytes(frame[:2], "big") for frame in recorded}
    assert keys >= {
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        18,
        19,
        20,
        22,
        26,
        32,
        37,
        42,
        44,
    }
    assert sum(frame[:2] == b"\0\0" for frame in recorded) >= len(CODECS)


def test_recorded_frames_are_answered(hunt: Hunt, recorded: list[bytes]) -> None:
    before = hunt.answered
    for frame in recorded:
        hunt.send(frame)
    assert hunt.answered - before > len(recorded) * 0.8


@each("api", APIS.values())
def test_every_version_of_every_api_is_answered(hunt: Hunt, api: Api) -> None:
    for version in range(api.lowest, api.highest + 1):
        for seed in range(3):
            hunt.send(bodies.request(Random(seed), api, version))


@fuzzed
@given(randoms)
def test_requests_by_the_schema(hunt: Hunt, random: Random) -> None:
    hunt.valid(random)


@fuzzed
@given(randoms)
def test_requests_that_lie(hunt: Hunt, random: Random) -> None:
    hunt.lying(random)


@fuzzed
@given(randoms)
def test_frames_of_real_clients_that_were_damaged(hunt: Hunt, random: Random) -> None:
    hunt.mutated(random)


@fuzzed
@given(randoms)
def test_record_batches_that_were_changed_inside(hunt: Hunt, random: Random) -> None:
    hunt.batch(random)


@fuzzed
@given(randoms)
def test_anything_at_all(hunt: Hunt, random: Random) -> None:
    hunt.raw(random)
