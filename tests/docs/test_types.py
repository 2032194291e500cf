"""The documents' programs pass `mypy --strict`, and it finds what does not fit the deserializers.

Method: one run of mypy over the pages' Python, and a program of which some lines are wrong. `make lint`
looks into eosdb itself and the examples.
"""

from __future__ import annotations

import inspect
import pydoc
import re
import sys
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

import eosdb
import eosdb.aio
from eosdb.client.processor.config import ProcessorSettings
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

PAGES: Final = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "asyncio",
            "groups",
            "guide",
            "index",
            "moving-to-kafka",
            "outbox",
            "processing",
            "recipes",
            "relay",
        )
    ),
)
PROGRAM: Final = """\
import json
from dataclasses import dataclass
from typing import Any, assert_type

import eosdb
import eosdb.aio
from eosdb import ConsumerRecord


@dataclass(frozen=True)
class Order:
    total: int


def order(data: bytes) -> Order:
    return Order(**json.loads(data))


def text(data: bytes) -> str:
    return data.decode()


def plain(record: ConsumerRecord) -> str:
    return str(record.value["total"])


def raw(record: ConsumerRecord[bytes, bytes]) -> bytes:
    return record.key + record.value


def careful(record: ConsumerRecord[bytes | None, bytes | None]) -> bytes | None:
    return record.value


def made(record: ConsumerRecord[str, Order]) -> str:
    return record.key + str(record.value.total)


def cautious(record: ConsumerRecord[str | None, Order | None]) -> None: ...
def with_tables(record: ConsumerRecord[bytes, Order], tx: eosdb.UserTransaction) -> None: ...
def of_many(records: list[ConsumerRecord[bytes, Order]]) -> list[bytes]:
    return [record.key for record in records if record.value.total]


def storing(records: list[ConsumerRecord[bytes, bytes]], tx: eosdb.UserTransaction) -> None: ...
def of_anything(consumer: eosdb.Consumer) -> Any:
    return consumer.poll()[0].value["total"]


def of_orders(consumer: eosdb.Consumer[bytes, Order]) -> int:
    return consumer.poll()[0].value.total


db = eosdb.connect("shop.db")
eosdb.process(db, "t", plain, group_id="g")
eosdb.process(db, "t", plain, group_id="g", value_deserializer=json.loads)
eosdb.process(db, "t", raw, "sink", group_id="g", dead_letter_topic="dlq", until_idle_ms=1)
eosdb.process(db, "t", careful, group_id="g")
eosdb.process(db, "t", made, group_id="g", key_deserializer=text, value_deserializer=order)
eosdb.process(db, "t", cautious, group_id="g", key_deserializer=text, value_deserializer=order)
eosdb.process(db, "t", with_tables, group_id="g", value_deserializer=order)
eosdb.process(db, "t", lambda r: str(r.value.total), group_id="g", value_deserializer=order)
eosdb.process(db, "t", of_many, group_id="g", batch=True, value_deserializer=order)
eosdb.process(db, "t", storing, group_id="g", batch=True, max_batch=9)
eosdb.process(db, "t", of_many, group_id="g", batch=True, value_deserializer=text)  # WRONG
eosdb.process(db, "t", with_tables, group_id="g", value_deserializer=text)  # WRONG
eosdb.process(db, "t", raw, group_id="g", nonsense=1)  # WRONG
eosdb.process(db, "t", raw)  # WRONG
eosdb.process(db, "t", raw, group_id="g", max_attempts="many")  # WRONG
db.processor("t", with_tables, group_id="g", value_deserializer=order).run()
eosdb.connect("shop.db", durability="normal")
eosdb.connect("shop.db", durability="fast")  # WRONG
db.consumer(isolation_level="read_uncommitted", auto_offset_reset="none")
db.consumer(isolation_level="READ_COMMITTED")  # WRONG
db.consumer(auto_offset_reset="smallest")  # WRONG
db.producer(value_serializer=json.dumps, key_serializer=str)

consumer = db.consumer("g", value_deserializer=order)
assert_type(consumer.poll()[0], ConsumerRecord[bytes | Any, Order | Any])
for record in consumer:
    print(record.key.decode(), record.value.total)
    record.value.sum  # WRONG
of_anything(consumer)
of_orders(consumer)
of_orders(db.consumer("g", value_deserializer=text))  # WRONG
with db.consumer() as of_bytes:
    of_anything(of_bytes)
    json.loads(of_bytes.poll()[0].value)
    of_bytes.poll()[0].value.total  # WRONG


async def in_a_loop() -> None:
    async with eosdb.aio.connect("shop.db") as opened:
        async with opened.consumer("t", value_deserializer=order) as consumer:
            async for record in consumer:
                print(record.value.total)
                record.value.sum  # WRONG
"""


def _program(page: str) -> str:
    return f"page_{Path(page).stem.replace('-', '_').lower()}.py"


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy finds in each program, by line."""
    folder = tmp_path_factory.mktemp("typed")
    for page in PAGES:
        blocks = re.findall(r"(?s)```python\n(.*?)```", (ROOT / page).read_text())
        blocks = [block for block in blocks if "def test_" not in block]  # Tests are not annotated.
        assert blocks
        (folder / _program(page)).write_text("\n".join(blocks))
    (folder / "program.py").write_text(PROGRAM)
    # With another way of following imports, the cache of `make lint` would be lost.
    options = [
        "--follow-imports=silent",
        "--cache-dir=.mypy_cache/documents",
        "--show-absolute-path",
    ]
    done = ended([sys.executable, "-m", "mypy", *options, *map(str, folder.glob("*.py"))], cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for path, line, message in re.findall(r"(?m)^(.+?\.py):(\d+): error: (.+)$", done.stdout):
        found[Path(path).name].setdefault(int(line), message)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_page_is_typed(complaints: dict[str, dict[int, str]], page: str) -> None:
    assert not complaints[_program(page)]


def test_mypy_finds_what_the_deserializers_do_not_make_and_what_no_setting_is(
    complaints: dict[str, dict[int, str]],
) -> None:
    lines = enumerate(PROGRAM.splitlines(), start=1)
    wrong = {number for number, line in lines if line.endswith("# WRONG")}
    assert len(wrong) == 12
    assert complaints["program.py"].keys() == wrong, complaints["program.py"]


def test_a_keyword_that_no_setting_has_is_one_line(complaints: dict[str, dict[int, str]]) -> None:
    (said,) = (text for text in complaints["program.py"].values() if "nonsense" in text)
    assert said == 'Unexpected keyword argument "nonsense" for "process"  [call-arg]'


def test_help_shows_every_setting_with_its_default_and_a_processors_with_its_sentence() -> None:
    of_processor = {"group_id", *(each.name for each in fields(ProcessorSettings))}
    for call in (eosdb.process, eosdb.Database.processor, eosdb.aio.AsyncDatabase.process):
        shown = inspect.signature(call).parameters
        assert shown.keys() >= of_processor
        assert shown["max_attempts"].default == 3
        assert not [each for each in shown.values() if each.kind is each.VAR_KEYWORD]
        told = pydoc.plain(pydoc.render_doc(call))
        assert not [
            field.name for field in fields(ProcessorSettings) if f"{field.name}: " not in told
        ]
    for made in (eosdb.Database, eosdb.aio.AsyncDatabase):
        assert inspect.signature(made.producer).parameters["linger_ms"].default == 0
        assert inspect.signature(made.consumer).parameters["max_poll_records"].default == 500
