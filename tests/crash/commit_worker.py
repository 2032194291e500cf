"""Forks children that are killed in the middle of their commit, each at another instant.

    python -m tests.crash.commit_worker FILE COUNT

Every child takes the same transactional id, writes one transaction to two partitions with an offset, says
its token, and dies by SIGKILL somewhere between asking for the commit and hearing the answer. One line a
child: the instant, producer id, epoch.
"""

from __future__ import annotations

import os
import sys

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.model import failpoints
from eosdb.model.failpoints import Failpoint

INSTANTS = (
    (Failpoint.UNIT_COMMITTED, 0, False),  # All is done in one commit, nobody has been told.
    (Failpoint.END_TXN_DECIDED, 0, True),
    (Failpoint.MARKER_WRITTEN, 0, True),
    (Failpoint.MARKER_WRITTEN, 1, True),
    (Failpoint.UNIT_COMMITTED, 0, True),  # The decision is durable, the coordinator does not know.
    (Failpoint.UNIT_COMMITTED, 1, True),  # All is done in two steps, nobody has been told.
)
"""The point, how often it is passed before, and whether the transaction ends in two steps."""
GROUP = "g"


def child(path: str, number: int) -> None:
    point, visits, in_steps = INSTANTS[number % len(INSTANTS)]
    db = eosdb.connect(path, durability="normal")
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    token = producer.begin_transaction()
    for partition in range(2):
        producer.send("t", f"{token.producer_id}/{token.producer_epoch}", partition=partition)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(number)}, GROUP)
    producer.flush()
    line = f"{point.value} {token.producer_id} {token.producer_epoch}\n"
    os.write(1, line.encode())
    failpoints._target = (point.value, visits)
    with failpoints.watched(lambda _: None, lambda: in_steps):
        producer.commit_transaction()


def main(path: str, count: int) -> None:
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                child(path, number)
            finally:
                os._exit(3)  # It should be dead.
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"child {number} was not killed: {status}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
