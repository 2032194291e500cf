"""Redis Streams: XADD, a consumer group, and results and XACK in one MULTI."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not.contract import Driver, Handle, Server, chunks
from benchmarks.why_not.servers import free_port, running


class RedisStreams(Driver):
    name = "redis"
    durable = "fsync before each answer (`appendonly yes`, `appendfsync always`)"
    modules = ("redis",)
    programs = ("redis-server",)

    @classmethod
    @contextmanager
    def serve(cls, folder: Path) -> Iterator[Server]:
        port = free_port()
        command = [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always",
        ]  # fmt: skip
        with running(command, log=folder / "server.log", port=port) as pid:
            yield Server(f"127.0.0.1:{port}", (pid,), folder)

    def connect(self) -> Any:
        host, _, port = self.address.partition(":")
        return import_module("redis").Redis(host, int(port), decode_responses=True)

    def create(self) -> None:
        self.connect().xgroup_create(f"in-{self.run}", "workers", id="0", mkstream=True)

    def produce(self, values: Iterable[str], size: int) -> None:
        client = self.connect()
        for some in chunks(values, size):
            if size == 1:
                client.xadd(f"in-{self.run}", {"value": some[0]})
            else:
                with client.pipeline(transaction=True) as pipe:
                    for value in some:
                        pipe.xadd(f"in-{self.run}", {"value": value})
                    pipe.execute()

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        client, last, done = self.connect(), time.monotonic(), 0
        stream, lease = f"in-{self.run}", int(self.lease_s * 1000)
        while done < limit and time.monotonic() - last <= idle_s:
            # What a dead worker had read and did not acknowledge.
            found = client.xautoclaim(stream, "workers", "worker", lease, count=size)[1]
            if not found:
                answer = client.xreadgroup("workers", "worker", {stream: ">"}, count=size, block=50)
                found = answer[0][1] if answer else []
            if found:
                with client.pipeline(transaction=True) as pipe:
                    for number, fields in found:
                        pipe.xadd(f"out-{self.run}", {"value": handle(fields["value"])})
                        pipe.xack(stream, "workers", number)
                    pipe.execute()
                done, last = done + len(found), time.monotonic()

    def results(self) -> list[str]:
        return [fields["value"] for _, fields in self.connect().xrange(f"out-{self.run}")]

    def inputs(self) -> list[str]:
        return [fields["value"] for _, fields in self.connect().xrange(f"in-{self.run}")]
