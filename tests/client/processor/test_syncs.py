"""What the threads of a processor cost in syncs: never more than one for each transaction."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import eosdb
from tests.client.processor.work import feed, upper, values
from tests.inside import Commits

RECORDS = [b"%03d" % number for number in range(60)]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_make_at_most_one_sync_for_each_transaction(db_path: Path, threads: int) -> None:
    """Records, offsets and the end of a transaction are one turn, so only turns and the producers' ids are
    synced. However the threads meet, a round of several turns is one sync. A commit that a rebalance
    refuses ends with a new id, and with an abort."""
    with eosdb.connect(db_path) as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, threads)
        for number, value in enumerate(RECORDS):
            feed(db, value, partition=number % threads)
        copies = [
            db.processor("in", upper, "out", group_id="g", transaction_size=3)
            for _ in range(threads)
        ]
        running = [threading.Thread(target=copy.run, args=(20,)) for copy in copies]
        before = db.metrics()
        with Commits(db) as commits:
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
        ends, ids = (
            db.metrics()[name] - before.get(name, 0)
            for name in ("requests:end_txn-total", "requests:init_producer_id-total")
        )
        blocks_of_ids = 1
        assert values(db) == [value.upper() for value in RECORDS]
        assert ends >= len(RECORDS) / 3
        assert commits.synced <= ends + 2 * ids + blocks_of_ids
