"""The member of a group that the crash tests kill, stop and let fork:
`python -m tests.crash.member_worker FILE NAME SESSION_MS [dies-when-revoked | forks]`.

Says what is assigned to it, revoked from it and lost, and the process that it forked.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import eosdb


def say(what: str, partitions: list[eosdb.TopicPartition]) -> None:
    print(what, *sorted(tp.partition for tp in partitions), flush=True)


def revoked(partitions: list[eosdb.TopicPartition]) -> None:
    if "dies-when-revoked" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    say("revoked", partitions)


def main() -> None:
    path, name, session_ms = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with eosdb.connect(path) as db:
        consumer = db.consumer("g", client_id=name, session_timeout_ms=session_ms)
        consumer.subscribe(
            "t",
            on_assign=lambda tps: say("assigned", tps),
            on_revoke=revoked,
            on_lost=lambda tps: say("lost", tps),
        )
        if "forks" in sys.argv:
            child = os.fork()
            if child == 0:
                time.sleep(600)
                os._exit(0)
            print("forked", child, flush=True)
        while True:
            consumer.poll(timeout_ms=10_000)


if __name__ == "__main__":
    main()
