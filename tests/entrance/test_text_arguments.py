"""Text that has no UTF-8 form, and what is no text, at every public entry.

Goal: nothing raises UnicodeEncodeError, or a TypeError from somewhere inside: the answer is one of eosdb's
errors, and it can be printed. Method: every parameter of every public method that takes text, found by
its annotation, is given a lone surrogate (what `json.loads('"\\\\ud800"')` makes, and what a shell makes of
bytes that are no UTF-8); the others are given what is right.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import (
    Acl,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    Record,
    RecordBatch,
    TopicPartition,
    TransactionToken,
)
from eosdb.admin.admin import Admin
from eosdb.client.consumer.settings import ConsumerConfig, ConsumerSettings
from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.dead_letters import DeadLetters
from eosdb.client.producer.settings import ProducerConfig, ProducerSettings
from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.topic_config import ConfigChange, ConfigOperation
from tests.cases import each
from tests.readers import newest_position

LONE = "a\ud800"
TP = TopicPartition("t", 0)
BAD_TP = TopicPartition(LONE, 0)
OFFSETS = {TP: OffsetAndMetadata(1)}
HEADERS: list[Any] = [
    [(LONE, b"")],
    [(1, b"")],
    [(b"h", b"")],
    [("h", LONE)],
    [("h", 5)],
    {LONE: b""},
    [("h",)],
    {"h": 5},
    "h",
    5,
]
BATCHES: list[Any] = [RecordBatch([Record(headers=headers)]) for headers in HEADERS] + [
    RecordBatch([Record(key=LONE)]),  # type: ignore[arg-type]
    RecordBatch([Record(value=LONE)]),  # type: ignore[arg-type]
]

TEXT: list[Any] = [LONE, 5, ["t"], b"t"]
PARTITIONS: list[Any] = [[BAD_TP]]
OFFSETS_OF_BAD: list[Any] = [
    {BAD_TP: OffsetAndMetadata(1)},
    {TP: OffsetAndMetadata(1, metadata=LONE)},
    {TP: OffsetAndMetadata(1, metadata=5)},  # type: ignore[arg-type]
]
GROUPS: list[Any] = [
    LONE,
    ConsumerGroupMetadata(LONE),
    ConsumerGroupMetadata("g", 1, LONE),
    ConsumerGroupMetadata("g", 1, "m", LONE),
]
BAD: dict[str, list[Any]] = {
    "str": TEXT,
    "IsolationLevel": TEXT,
    "str | None": TEXT,
    "str | os.PathLike[str]": [LONE, 5],
    "str | os.PathLike[str] | None": [LONE, 5],
    "int | str": [LONE],
    "Collection[str]": [[LONE], [5]],
    "Sequence[str]": [[LONE], LONE, [5]],
    "tuple[str, ...]": [(LONE,)],
    "str | Collection[str]": [LONE, [LONE], [5]],
    "Iterable[str]": [LONE, [LONE], [5], 5],
    "DeliverAt | None": ["tomorrow", LONE, -1, 2**63],
    "str | Iterable[str] | re.Pattern[str]": [LONE, [LONE], [5]],
    "Topics": [LONE, [LONE], [5]],
    "Headers": HEADERS,
    "Sequence[tuple[str, bytes]]": [[(LONE, b"")]],
    "TopicPartition": [BAD_TP],
    "TopicPartition | None": [BAD_TP],
    "Iterable[TopicPartition]": PARTITIONS,
    "Iterable[TopicPartition] | None": PARTITIONS,
    "Mapping[TopicPartition, int]": [{BAD_TP: 1}],
    "Mapping[TopicPartition, OffsetAndMetadata]": OFFSETS_OF_BAD,
    "Mapping[TopicPartition, OffsetAndMetadata] | None": OFFSETS_OF_BAD,
    "Mapping[TopicPartition, RecordBatch]": [
        {BAD_TP: RecordBatch([Record()])},
        *({TP: batch} for batch in BATCHES),
    ],
    "Batches": [{BAD_TP: [Record()]}, *({TP: batch.records} for batch in BATCHES)],
    "RecordBatch": BATCHES,
    "Mapping[str, bytes] | None": [{LONE: b""}],
    "Mapping[str, object] | None": [{LONE: "1"}, {"cleanup.policy": LONE}],
    "Mapping[str, object | None]": [{LONE: "1"}, {"retention.ms": LONE}],
    "Mapping[str, str]": [{LONE: "TEXT"}, {"a": LONE}],
    "Iterable[Acl]": [
        [Acl(f"User:{LONE}", "read", "topic", "t")],
        [Acl("User:a", LONE, "topic", "t")],
        [Acl("User:a", "read", "topic", LONE)],
    ],
    "ScramCredential": [
        LONE,
        ScramCredential(LONE, "SCRAM-SHA-256", 4096, "", "", ""),
        ScramCredential("a", LONE, 4096, "", "", ""),
        ScramCredential("a", "SCRAM-SHA-256", 4096, LONE, "", ""),
        ScramCredential("a", "SCRAM-SHA-256", 4096, "", "", 5),  # type: ignore[arg-type]
    ],
    "Iterable[ConfigChange]": [
        [ConfigChange(LONE, ConfigOperation.SET, "1")],
        [ConfigChange("retention.ms", ConfigOperation.SET, LONE)],
        [ConfigChange("cleanup.policy", ConfigOperation.APPEND, LONE)],
    ],
    "str | UUID": [LONE, 5],
    "Collection[str] | None": [[LONE], LONE, [5]],
    "Sequence[object]": [[LONE]],
    "Parameters": [[LONE], LONE, 5, {"a": LONE}, {LONE: 1}],
    "Iterable[Sendable]": [
        [LONE],
        [(LONE, b"v")],
        [ProducerRecord(topic=LONE)],
        *([ProducerRecord(headers=headers)] for headers in HEADERS),
    ],
    "Sequence[int]": [[LONE], LONE],
    "object": [LONE],
    "Sequence[Header]": HEADERS,
    "Iterable[Header]": HEADERS,
    "ConsumerGroupMetadata | str": GROUPS,
    "str | ConsumerGroupMetadata": GROUPS,
    "Sequence[tuple[str, str | None]]": [[(LONE, None)], [("m", LONE)], [(5, None)]],
    "TransactionToken": [TransactionToken(LONE, 0, 0), TransactionToken(5, 0, 0)],  # type: ignore[arg-type]
}
"""By annotation: what is no good there."""
TAKES_NO_TEXT = {
    "Overview | None",
    "int", "int | None", "bool", "Callable[[], bool]", "Callable[[Acl], bool]", "Progress | None",
    "OnDelivery | None", "OnChange | None", "Collection[tuple[int, int]] | None",
    "Callable[[bytes], MadeKey] | None", "Callable[[bytes], MadeValue] | None", "Any",
    "Transport | LocalBroker | None", "Handlers[MadeKey, MadeValue]", "SentRecords | None",
    "Request[A]", "Limits | None", "Interfere | None", "UUID | None",
    "Mapping[TopicPartition, UUID] | None", "Mapping[str, UUID] | None",
    "Mapping[UUID, Collection[int]] | None",
    "Never",
}  # fmt: skip
"""What is left alone."""
SETTINGS = {
    each.name
    for kind in (ProducerSettings, ConsumerSettings, ProcessorSettings)
    for each in fields(kind)
}
"""They have a test of their own."""
GOOD: dict[str, Any] = {
    "records": [b"v"],
    "transactional_id": "q", "group_id": "g", "group": "g", "group_metadata": "g", "member_id": "",
    "producer_id": 0, "producer_epoch": 0, "topic": "t", "name": "t", "topic_partition": TP,
    "partition": TP, "partitions": [TP], "topic_partitions": [TP], "offsets": OFFSETS, "offset": 0,
    "timestamp": -1, "batch": RecordBatch([Record(value=b"v")]), "generation_id": 1, "key": "k",
    "committed": True, "coordinator_epoch": 0, "before_offset": 0, "isolation_level": "read_committed",
    "transactional_ids": ["q"], "member_ids": "m", "batches": {TP: [Record(value=b"v")]}, "acls": [],
    "total": 2, "columns": {"a": "TEXT"}, "start_offset": 0, "start": 0, "end": 1, "sink_id": "s",
    "batch_id": 1, "target": "copy.db", "view": "records", "token": TransactionToken("q", 0, 0),
    "sql": "SELECT ?", "topics": "t", "handler": lambda record: None, "timestamps": {TP: 0},
    "user": "u", "password": "p", "members": [("m", None)],
    "config": {}, "changes": [], "resource_type": "topic", "sink": None,
    "protocols": [("range", b"")], "to_earliest": True, "positions": {TP: 0},
}  # fmt: skip
"""By name: what is right for a parameter that must be given."""
NOT_FOR_USERS = {
    "Broker.turn", "Admin.ensure_topic", "Admin.read_blocks",
    "Database.publish",  # The old name of publish_copy.
}  # fmt: skip


def owners(db: eosdb.Database) -> dict[str, Callable[[], Any]]:
    def producer() -> eosdb.Producer:
        made = db.producer(transactional_id="p")
        made.init_transactions()
        made.begin_transaction()
        return made

    def consumer() -> eosdb.Consumer:
        made = db.consumer(group_id="c")
        made.assign([TP])
        return made

    return {
        "Broker": lambda: db.broker,
        "Admin": lambda: db.admin,
        "Database": lambda: db,
        "Producer": producer,
        "Consumer": consumer,
        "DeadLetters": lambda: db.dead_letters("t"),
    }


CLASSES = [
    eosdb.Broker,
    Admin,
    eosdb.Database,
    eosdb.Producer,
    eosdb.Consumer,
    DeadLetters,
    eosdb.UserTransaction,
]


def parameters() -> Iterator[tuple[str, str, inspect.Parameter]]:
    for cls in CLASSES:
        for name, method in inspect.getmembers(cls, callable):
            if name.startswith("_") or f"{cls.__name__}.{name}" in NOT_FOR_USERS:
                continue
            for parameter in list(inspect.signature(method).parameters.values())[1:]:
                if cls is not eosdb.Database or parameter.name not in SETTINGS:
                    yield cls.__name__, name, parameter


def cases() -> list[Any]:
    return [
        pytest.param(
            owner, method, parameter.name, bad, id=f"{owner}.{method} {parameter.name} {n}"
        )
        for owner, method, parameter in parameters()
        for n, bad in enumerate(BAD.get(str(parameter.annotation), []))
    ]


def test_every_kind_of_parameter_is_known() -> None:
    unknown = {
        f"{owner}.{method}({p.name}: {p.annotation})"
        for owner, method, p in parameters()
        if str(p.annotation) not in BAD.keys() | TAKES_NO_TEXT
    }
    assert not unknown, "say what is no good there, or that it takes no text"


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("t")
    db.broker.init_producer_id("q")
    return db


def answered(call: Callable[[], Any]) -> None:
    """It may answer; what it raises is eosdb's, and can be printed."""
    try:
        result = call()
        if isinstance(result, eosdb.Database | eosdb.Consumer | eosdb.Producer):
            result.close()
        elif isinstance(result, Iterator):
            list(result)
        elif isinstance(result, dict):
            errors = [getattr(value, "error", None) for value in result.values()]
            if any(errors):
                raise next(filter(None, errors))
        elif hasattr(result, "result"):
            result.result()
    except eosdb.EosdbError as error:
        str(error).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[eosdb.Database]:
    """One file for all arguments of all methods, in a folder that is the current one, too."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        clock = eosdb.ManualClock(1_700_000_000_000)
        with eosdb.connect(folder / "test.db", clock=clock, durability="off") as db:
            db.admin.create_topic("t")
            db.broker.init_producer_id("q")
            yield db
            assert db.verify().ok


@pytest.mark.slow
@each(("owner", "method", "name", "bad"), cases())
def test_what_cannot_be_stored_as_text_is_answered_by_name(
    shared: eosdb.Database, owner: str, method: str, name: str, bad: Any
) -> None:
    assert shared.broker.partitions_for("t") == 1, "open, and as it was made"
    before = newest_position(shared)
    cls = next(cls for cls in CLASSES if cls.__name__ == owner)
    signature = inspect.signature(getattr(cls, method))
    given = {
        parameter.name: GOOD[parameter.name]
        for parameter in list(signature.parameters.values())[1:]
        if parameter.default is parameter.empty
        and parameter.name != name
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and not (method == "query" and parameter.name == "parameters")
    }
    if method == "produce":
        given["batches"] = {TP: GOOD["batch"]}
    given[name] = bad

    def call() -> Any:
        if owner == "UserTransaction":
            with shared.begin() as transaction:
                return getattr(transaction, method)(**given)
        return getattr(owners(shared)[owner](), method)(**given)

    answered(call)
    assert newest_position(shared) == before or shared.verify().ok


def text_settings(config: type) -> list[str]:
    return sorted(n for n, kind in config.__annotations__.items() if "str" in str(kind))


@pytest.mark.parametrize("name", text_settings(ProducerConfig))
def test_settings_of_producers(shop: eosdb.Database, name: str) -> None:
    def run() -> Any:
        producer = shop.producer(**{name: LONE})  # type: ignore[arg-type]
        if name == "transactional_id":
            producer.init_transactions()
            producer.begin_transaction()
        return producer.send("t", "v", key="k").result()

    answered(run)


@pytest.mark.parametrize("name", ["group_id", *text_settings(ConsumerConfig)])
def test_settings_of_consumers(shop: eosdb.Database, name: str) -> None:
    def run() -> Any:
        consumer = shop.consumer(**{"group_id": "g", name: LONE})  # type: ignore[arg-type]
        consumer.subscribe("t")
        consumer.poll()
        consumer.commit()
        return consumer

    answered(run)


@pytest.mark.parametrize(
    "name", ["topics", "sink", "group_id", "transactional_id", "dead_letter_topic"]
)
def test_settings_of_processors(shop: eosdb.Database, name: str) -> None:
    shop.broker.append(TP, RecordBatch([Record(value=b"v")]))
    shop.admin.create_topic("out")
    config: Any = {"consumer": {"auto_offset_reset": "earliest"}, "max_attempts": 1}
    given = {"topics": "t", "sink": "out", "group_id": "g", "transactional_id": "x"} | config
    answered(
        lambda: eosdb.process(
            shop, handler=lambda r: b"v", until_idle_ms=10, **given | {name: LONE}
        )
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [({"path": LONE}, "path"), ({"path": 5}, "path"), ({"principal": LONE}, "principal")],
)
def test_a_database_is_opened_by_text(tmp_path: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(eosdb.ConfigError, match=named):
        eosdb.connect(**{"path": tmp_path / "a.db"} | given)


def test_a_file_whose_name_is_no_text_is_a_file_like_any(
    tmp_path: Path, clock: eosdb.ManualClock
) -> None:
    """What the shell makes of bytes that are no UTF-8; only what SQLite is to name must be text."""
    name = os.path.join(tmp_path, "a\udcff")
    with eosdb.connect(name, clock=clock) as db:
        db.admin.create_topic("t")
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))
        db.backup(name + "copy")
        with pytest.raises(eosdb.ConfigError, match="UTF-8"):
            db.publish_copy(name + "published")
    with eosdb.connect(name + "copy", clock=clock, read_only=True) as copy:
        assert copy.broker.offsets(TP).log_end_offset == 1
