"""Consume, process, produce with the three clients of Python, two programs of each, the server killed
meanwhile: every record once, and in order for each key."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import eosdb
from eosdb import ConsumerRecord, UnstableOffsetCommitError
from tests.trials.judges.case import LONG_S, Case, Judge
from tests.trials.judges.serving import at_marks, wait_until
from tests.trials.judges.verdicts import FailedError

PROGRAMS: Final = Path(__file__).parent / "programs"
PARTITIONS: Final = 4
RECORDS: Final = 20_000
KEYS: Final = 50
MARKS: Final = (1_000, 4_000, 7_000, 10_000, 13_000)
GROUP: Final = "etl"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "confluent_etl.py", "aiokafka_etl.py", "kafka_python_etl.py"


def with_programs(*names: str) -> Callable[[Case], str]:
    """A judge that runs these programs in one group."""

    def ask(case: Case) -> str:
        def partitions(number: int, name: str) -> list[str]:
            mine = range(number, PARTITIONS, len(names)) if name == AIOKAFKA else ()
            return [str(it) for it in mine]

        return copied(
            case,
            [[sys.executable, str(PROGRAMS / name)] for name in names],
            more=[partitions(*it) for it in enumerate(names)],
        )

    return ask


def copied(
    case: Case,
    programs: Sequence[Sequence[str]],
    environment: Mapping[str, str] | None = None,
    more: Sequence[Sequence[str]] = (),
    deaths: Sequence[int] = (),
    kills: Sequence[int] = MARKS,
    records: int = RECORDS,
    compared: Callable[[Sequence[ConsumerRecord], Sequence[ConsumerRecord]], str] | None = None,
) -> str:
    """The programs copy a topic in one group until all of it is committed, while the server is killed at
    `kills`, and one program after the other at `deaths`. Each is called with BOOTSTRAP INPUT OUTPUT GROUP
    TRANSACTIONAL_ID, and what `more` has for it. `compared` is `compare` by default."""
    case.create_topics(PARTITIONS, "input", "output")
    fill(case, records)
    commands = [
        [*program, case.server.bootstrap, "input", "output", GROUP, f"etl-{number}"]
        for number, program in enumerate(programs)
    ]
    for command, arguments in zip(commands, more, strict=False):
        command += arguments
    with (
        case.server.killed_at(case.watch("output"), kills),
        _running(case, commands, environment, deaths),
        _until_all_is_committed(case),
    ):
        pass
    return (compared or compare)(case.committed("input"), case.committed("output"))


@contextmanager
def _running(
    case: Case,
    commands: Sequence[list[str]],
    environment: Mapping[str, str] | None,
    deaths: Sequence[int],
) -> Iterator[None]:
    """The programs; at each mark the next one is killed, and started again."""
    with ExitStack() as programs:
        alive: dict[int, subprocess.Popen[bytes]] = {}

        def start(number: int) -> None:
            running = case.running(f"etl-{number}", commands[number], environment)
            alive[number] = programs.enter_context(running)

        def kill_and_restart(turn: int) -> None:
            number = turn % len(commands)
            alive[number].kill()
            alive[number].wait()
            start(number)

        for number in range(len(commands)):
            start(number)
        with at_marks(case.watch("output"), deaths, kill_and_restart):
            yield


def _until_all_is_committed(case: Case) -> ExitStack:
    """Waits on leaving for the group's offsets to come to the ends of its input."""
    waits = ExitStack()
    partitions = case.partitions("input")
    db = waits.enter_context(eosdb.connect(case.server.file))
    consumer = waits.enter_context(db.consumer(group_id=GROUP))

    def all_is_committed() -> bool:
        try:
            committed = consumer.committed(partitions)
        except UnstableOffsetCommitError:
            return False
        ends = consumer.end_offsets(partitions)
        return all(
            (found := committed.get(it)) is not None and found.offset >= ends[it]
            for it in partitions
        )

    waits.callback(wait_until, all_is_committed, "the group commits all of its input", LONG_S)
    return waits


def fill(case: Case, records: int = RECORDS) -> None:
    with eosdb.connect(case.server.file) as db:
        producer = db.producer(linger_ms=5)
        for it in range(records):
            producer.send("input", b"%d" % it, key=b"k%d" % (it % KEYS))
            if it % 1_000 == 999:
                producer.flush()
        producer.flush()


def compare(was: Sequence[ConsumerRecord], now: Sequence[ConsumerRecord]) -> str:
    """Each key's values are those that were, in the same order."""
    before, after = by_key(was), by_key(now)
    if before != after:
        copies = len(now) - len({it.value for it in now})
        lost = len({it.value for it in was} - {it.value for it in now})
        keys = [key for key in before | after if before.get(key) != after.get(key)]
        spread = sum(len({it.partition for it in now if it.key == key}) > 1 for key in keys)
        raise FailedError(
            f"{len(was)} in, {len(now)} out: {copies} twice, {lost} lost; {len(keys)} keys have not "
            f"the same values in the same order, {spread} of them in several partitions"
        )
    return f"{len(was):,} records in, the same {len(now):,} out, in order for each key"


def compare_at_least_once(was: Sequence[ConsumerRecord], now: Sequence[ConsumerRecord]) -> str:
    """Each key's values are those that were, in the same order, if only the first of each copy counts."""
    before, after = by_key(was), by_key(now)
    firsts = {key: list(dict.fromkeys(values)) for key, values in after.items()}
    copies = len(now) - sum(map(len, firsts.values()))
    if before != firsts:
        lost = len({it.value for it in was} - {it.value for it in now})
        keys = [key for key in before | firsts if before.get(key) != firsts.get(key)]
        raise FailedError(
            f"{len(was)} in, {len(now)} out: {lost} lost, {copies} again; the first copies of {len(keys)} "
            "keys are not the same values in the same order"
        )
    return f"{len(was):,} records in, none lost, {copies} again, first copies in order for each key"


def by_key(records: Sequence[ConsumerRecord]) -> dict[object, list[object]]:
    found = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return dict(found)


JUDGES: Final = [
    Judge("confluent-kafka", version("confluent-kafka"), with_programs(CONFLUENT, CONFLUENT)),
    Judge("aiokafka", version("aiokafka"), with_programs(AIOKAFKA, AIOKAFKA)),
    Judge("kafka-python", version("kafka-python"), with_programs(KAFKA_PYTHON, KAFKA_PYTHON)),
    # Each brings assignors of its own; both have "range".
    Judge("two clients in a group", "as above", with_programs(CONFLUENT, KAFKA_PYTHON)),
]
