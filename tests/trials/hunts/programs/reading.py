"""A member of a group that stores what it has read and its offsets in one commit, and a reader without a
group that writes down which records it is given."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Final, TextIO

import eosdb
from eosdb import TopicPartition
from tests.trials.hunts.programs.processing import TABLE
from tests.trials.hunts.programs.working import CONFIG, PARTITIONS, TOPIC, Setting, Stopping

_WAIT_MS: Final = 100


def member(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    """Read once, and store it. After an error the program begins anew at what is committed."""
    records = consumer.poll(_WAIT_MS)
    if not records:
        return
    with db.begin() as tx:
        for record in records:
            row = record.partition, record.offset
            tx.connection.exec_driver_sql(f"INSERT INTO {TABLE} VALUES (?, ?)", row)
        tx.commit_offsets(consumer.group_metadata(), consumer.position_offsets())


def read(reader: eosdb.Consumer, log: TextIO) -> None:
    for record in reader.poll():
        assert isinstance(record.value, bytes | None)
        value = None if record.value is None else record.value.decode()
        print(json.dumps([record.partition, record.offset, value]), file=log, flush=True)


def run(setting: Setting, stopping: Stopping, log: TextIO) -> None:
    """Until told to stop, or an error."""
    with (
        eosdb.connect(setting.path, config=CONFIG) as db,
        db.consumer(setting.name, **setting.member) as consumer,
        db.consumer(auto_offset_reset="earliest") as reader,
    ):
        consumer.subscribe([TOPIC])
        reader.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        while not stopping.is_set:
            member(db, consumer)
            read(reader, log)


def main() -> None:
    setting, stopping = Setting.from_arguments(), Stopping()
    life = 0
    while not stopping.is_set:
        life += 1
        try:
            name = f"read.{os.getpid()}.{life}.log"
            with (setting.folder / name).open("w", encoding="utf-8") as log:
                run(setting, stopping, log)
        except eosdb.EosdbError as error:
            print(f"again: {type(error).__name__}: {error}", file=sys.stderr)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
