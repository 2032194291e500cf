"""Other people's Kafka clients at a served file: those that write, those that copy and those that read."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

import eosdb
from tests.integrations.relay.contents import Content
from tests.store.schema.stored_events import details
from tests.tidy.tree import ROOT
from tests.trials.hunts.actors.actor import LATER_GROUPS, Actor, Copier, Need
from tests.trials.hunts.actors.relays import count as count_of
from tests.trials.hunts.actors.relays import different, history, in_file, source_of
from tests.trials.hunts.actors.wire import OverTheWire
from tests.trials.hunts.programs.confluent_group import MIXED, NOTES, OTHERS
from tests.trials.hunts.programs.java import CLASS_PATH, CLASSES, MEMORY, SOURCES
from tests.trials.hunts.programs.working import BY_COORDINATOR, FEEDER, PARTITIONS, TOPIC
from tests.trials.hunts.world import PATIENCE_S, Role, World
from tests.trials.judges import artifacts, streams, years
from tests.trials.judges.java import JARS
from tests.trials.judges.verdicts import MissingError


def compile_java(world: World, source: str, jars: str) -> None:
    """Of `tests.trials.hunts.programs`, into the world's folder, with the class path beside it."""
    classes = world.folder / CLASSES
    javac = ["javac", "-cp", jars, "-d", str(classes), str(SOURCES / source)]
    subprocess.run(javac, check=True, timeout=PATIENCE_S)
    (world.folder / CLASS_PATH).write_text(jars)


def missing(name: str, jars: Sequence[artifacts.Jar]) -> str | None:
    """What there is not of a compiler and jars, which are fetched once."""
    if shutil.which("javac") is None:
        return "there is no Java compiler; apt-get install default-jdk-headless"
    try:
        artifacts.class_path(name, jars)
    except MissingError as error:
        return str(error)
    return None


class Java(OverTheWire):
    weight = 2

    def __init__(self, name: str, summary: str, jars: Sequence[artifacts.Jar]) -> None:
        super().__init__(name, summary, "java")
        self._jars = jars

    def left_out(self) -> str | None:
        return missing(self.name, self._jars)

    def begin(self, world: World) -> None:
        compile_java(world, "Transactions.java", artifacts.class_path(self.name, self._jars))
        super().begin(world)


class OfYear(OverTheWire):
    """An older release, which is found before the installed one. Not kafka-python 2.2: if one request of a
    transaction is refused for good, it waits without a limit for the transaction's end."""

    def __init__(self, client: str, release: str, module: str) -> None:
        super().__init__(f"{client}-{release}", f"{client} {release}'s {_ABORTED}", module)
        self._release = client, release

    def left_out(self) -> str | None:
        try:
            self._packages()
        except MissingError as error:
            return str(error)
        return None

    def _packages(self) -> Path:
        python = Path(years.command(*self._release)[0])
        return next(python.parents[1].glob("lib/*/site-packages"))

    def begin(self, world: World) -> None:
        world.serve()
        path = f"PYTHONPATH={self._packages()}:{ROOT}"
        world.add("client", ["env", path, *world.program(self.module, self.name)])


class Group(Copier):
    """A program of the group of its own name, which copies what the feeder writes to a topic of it."""

    has = frozenset({Need.CONNECTION, Need.SERVER, Need.LONG_LIFE})

    def begin(self, world: World) -> None:
        world.serve()
        world.add("feeder", world.program("writers", FEEDER))
        self.start(world, "client")

    def start(self, world: World, role: str) -> None:
        """Make the topic, and start the program."""
        with eosdb.connect(world.path) as db:
            db.admin.create_topic(self.name, PARTITIONS, {"retention.ms": "-1"})
        world.roles[role] = Role(world, "client", self.command(world), self.name)
        world.roles[role].start()

    def command(self, world: World) -> list[str]:
        return world.program(self.module, self.name)

    def progress(self, world: World) -> int:
        return count_of(world.path, self.name)

    def settle(self, world: World) -> None:
        """Begin it again, until its group has come to the end."""
        client = world.roles["client"]
        client.start()
        world.until(lambda: not self.behind(world), "the group comes to the end")
        client.stop()

    def behind(self, world: World) -> list[str]:
        """Where its position is not behind the last record."""
        with eosdb.connect(world.path) as db:
            try:
                parts = db.admin.describe_group_offsets(self.name).partitions
            except eosdb.GroupIdNotFoundError:
                parts = ()
        at = {part.partition: part.lag for part in parts if part.topic == TOPIC}
        return [
            f"the group {self.name} is behind in partition {partition}: {at.get(partition)}"
            for partition in range(PARTITIONS)
            if at.get(partition) != 0
        ]

    def problems(self, world: World) -> list[str]:
        target = in_file(world.path, self.name)
        numbers = [count() for _ in range(PARTITIONS)]
        source = source_of(world, target)
        expected = [self.expected(record, next(numbers[record.partition])) for record in source]
        return self.behind(world) + different(expected, target)

    def expected(self, record: Content, number: int) -> Content:
        """What is made of a record, whose number in its partition is this."""
        return record


class Client(Group):
    """A client of another maker."""

    def __init__(
        self, name: str, summary: str, module: str = "", cannot: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.summary, self.module = name, summary, module
        if cannot is not None:
            self.cannot = cannot


class KafkaPythonCopy(Client):
    def expected(self, record: Content, number: int) -> Content:
        """It takes no header without a value, and its program takes none along."""
        return record._replace(headers=())


class ConfluentGroup(Client):
    def progress(self, world: World) -> int:
        notes = world.folder / NOTES
        return notes.read_bytes().count(b"\n") if notes.exists() else 0

    def problems(self, world: World) -> list[str]:
        """A record is read behind all that stand before it, and nothing else is read."""
        read: list[list[str | None]] = [[] for _ in range(PARTITIONS)]
        newest, places = [-1] * PARTITIONS, set()
        for line in (world.folder / NOTES).read_text().splitlines():
            for partition, offset, value in json.loads(line):
                if offset > newest[partition]:  # Else it is read again, from the position.
                    newest[partition] = offset
                    read[partition].append(value)
                    places.add((partition, offset))
        there: list[list[str | None]] = [[] for _ in range(PARTITIONS)]
        for place, record, is_removed in history(world):
            if not is_removed or place in places:
                value = None if record.value is None else record.value.decode()
                there[record.partition].append(value)
        return self.behind(world) + [
            f"partition {partition}: {len(read[partition])} records read, {len(there[partition])} there"
            for partition in range(PARTITIONS)
            if read[partition] != there[partition]
        ]


class ConfluentMixed(Client):
    def begin(self, world: World) -> None:
        super().begin(world)
        world.add("other", world.program(self.module, f"{MIXED}-other"))

    def settle(self, world: World) -> None:
        """Both go on until the group has changed over both ways."""
        for role in ("client", "other"):
            world.roles[role].start()
        world.until(lambda: min(changed_over(world.path)) > 0, "the group changes over and back")
        world.roles["other"].stop()
        with eosdb.connect(world.path) as db:
            for name in OTHERS:  # What they have left open would hide what stands behind it.
                with db.producer(transactional_id=name) as producer:
                    producer.init_transactions()
        super().settle(world)


def changed_over(path: Path) -> tuple[int, int]:
    """How often the group went to the new protocol, and back, while it had members that stayed."""
    times, members, was_new = [0, 0], set[str](), False
    for event in details(path, "GroupChanged"):
        if event["group_id"] == MIXED:
            named, is_new = (
                {it["member_id"] for it in event["members"]},
                event["group_type"] == "consumer",
            )
            times[was_new] += is_new != was_new and not members.isdisjoint(named)
            members = (members - {*event["removed"]}) | named
            was_new = is_new
    return times[0], times[1]


class Streams(Client):
    weight = 3
    cannot: Mapping[str, str] = MappingProxyType(
        {"remove-oldest": "the numbers that it gives do not tell which records it never read"}
    )

    def left_out(self) -> str | None:
        return missing("streams", streams.JARS)

    def command(self, world: World) -> list[str]:
        jars = artifacts.class_path("streams", streams.JARS)
        compile_java(world, "Numbering.java", jars)
        return self._numbering(world, jars, "state")

    def copy_of(self, world: World) -> list[str]:
        """With a folder of its own for its state."""
        return self._numbering(
            world, artifacts.class_path("streams", streams.JARS), "state/another"
        )

    def _numbering(self, world: World, jars: str, folder: str) -> list[str]:
        state = world.folder / folder
        state.mkdir(exist_ok=True)
        java = ["java", *MEMORY, *artifacts.QUIET, "-cp", f"{world.folder / CLASSES}:{jars}"]
        return [*java, "Numbering", world.address, self.name, str(state), TOPIC, self.name]

    def expected(self, record: Content, number: int) -> Content:
        value = b"%d %s" % (number, (record.value or b"").rstrip())
        return record._replace(key=record.partition.to_bytes(4), value=value, headers=())


_ABORTED: Final = "transactional producer, one in seven aborted"
_PLAIN: Final = "idempotent producer without transactions, several records at once"
_COPIES: Final = "consumes, processes and produces, offsets in the transaction"
_READERS: Final = (
    "a group of two consumers of confluent-kafka, read_committed; each stores a record before it "
    "commits the offset"
)
_BY_COORDINATOR: Final = "; the coordinator assigns (KIP-848)"
_OF_CONFLUENT: Final = "confluent_group"
ACTORS: Final[list[Actor]] = [
    OverTheWire("kafka-python", f"kafka-python's {_ABORTED}", "kafka_python"),
    OverTheWire("kafka-python-plain", f"kafka-python's {_PLAIN}", "kafka_python"),
    OverTheWire("aiokafka", f"aiokafka's {_ABORTED}", "aiokafka"),
    OverTheWire("confluent-plain", f"confluent-kafka's {_PLAIN}", "confluent"),
    ConfluentGroup("confluent-group", _READERS, _OF_CONFLUENT),
    ConfluentGroup(
        f"confluent-group{BY_COORDINATOR}", _READERS + _BY_COORDINATOR, _OF_CONFLUENT, LATER_GROUPS
    ),
    Client(
        f"confluent-copy{BY_COORDINATOR}",
        f"confluent-kafka {_COPIES}{_BY_COORDINATOR}",
        _OF_CONFLUENT,
        LATER_GROUPS,
    ),
    ConfluentMixed(
        MIXED,
        "three such copiers in a group, which changes over and back: each of their lives is a member of "
        "the classic protocol or of the new one (KIP-848)",
        _OF_CONFLUENT,
        LATER_GROUPS,
    ),
    OfYear("aiokafka", "0.8.1", "aiokafka"),
    OfYear("confluent-kafka", "2.0.2", "confluent"),
    Java("java", f"Java's {_ABORTED}", JARS),
    Java(
        "java-2.8.2",
        f"Java 2.8.2's {_ABORTED}",
        [artifacts.kafka_jar("kafka-clients", version="2.8.2"), artifacts.logging_jar()],
    ),
    Streams("streams", "Kafka Streams, exactly_once_v2, numbers records by a store"),
    Client("confluent-copy", f"confluent-kafka {_COPIES}", _OF_CONFLUENT),
    KafkaPythonCopy("kafka-python-copy", f"kafka-python {_COPIES}", "kafka_python_group"),
    Client("aiokafka-copy", f"aiokafka {_COPIES}", "aiokafka_group"),
]
