"""NATS JetStream: messages and results with ids of their own, a durable pull consumer, `ack_sync`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not.contract import Driver, Handle, Server, chunks
from benchmarks.why_not.servers import free_port, running


class JetStream(Driver):
    name = "nats"
    durable = "fsync before each answer (file store, `sync_interval: always`)"
    modules = ("nats",)
    programs = ("nats-server",)
    lease_min_s = 1.0

    @classmethod
    @contextmanager
    def serve(cls, folder: Path) -> Iterator[Server]:
        port, config = free_port(), folder / "nats.conf"
        store = f'jetstream {{ store_dir: "{folder}", sync_interval: always }}'
        config.write_text(f"listen: 127.0.0.1:{port}\n{store}\n")
        with running(
            ["nats-server", "-c", str(config)], log=folder / "server.log", port=port
        ) as pid:
            yield Server(f"nats://127.0.0.1:{port}", (pid,), folder)

    async def connect(self) -> tuple[Any, Any]:
        client = await import_module("nats").connect(self.address)
        return client, client.jetstream()

    def create(self) -> None:
        async def create() -> None:
            client, stream = await self.connect()
            for name in (f"in-{self.run}", f"out-{self.run}"):
                await stream.add_stream(name=name, subjects=[name])
            config = import_module("nats.js.api").ConsumerConfig(
                durable_name="worker", ack_policy="explicit", ack_wait=self.lease_s
            )
            await stream.add_consumer(f"in-{self.run}", config)
            await client.close()

        asyncio.run(create())

    def produce(self, values: Iterable[str], size: int) -> None:
        async def produce() -> None:
            client, stream = await self.connect()
            for some in chunks(values, size):
                sent = [
                    stream.publish(
                        f"in-{self.run}", value.encode(), headers={"Nats-Msg-Id": value[:8]}
                    )
                    for value in some
                ]
                await asyncio.gather(*sent)
            await client.close()

        asyncio.run(produce())

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        async def work() -> None:
            timed_out: Any = import_module("nats.errors").TimeoutError
            client, stream = await self.connect()
            source, sink = f"in-{self.run}", f"out-{self.run}"
            queue = await stream.pull_subscribe_bind("worker", stream=source)
            last, done = time.monotonic(), 0
            while done < limit and time.monotonic() - last <= idle_s:
                try:
                    found = await queue.fetch(size, timeout=0.5)
                except timed_out:
                    continue
                results = []
                for message in found:
                    name = f"{source}/{message.metadata.sequence.stream}"
                    value = handle(message.data.decode()).encode()
                    results.append(stream.publish(sink, value, headers={"Nats-Msg-Id": name}))
                await asyncio.gather(*results)
                await asyncio.gather(*(message.ack_sync() for message in found))
                done, last = done + len(found), time.monotonic()
            await client.close()

        asyncio.run(work())

    def results(self) -> list[str]:
        return asyncio.run(self.read(f"out-{self.run}"))

    def inputs(self) -> list[str]:
        return asyncio.run(self.read(f"in-{self.run}"))

    async def read(self, name: str) -> list[str]:
        client, stream = await self.connect()
        count = (await stream.stream_info(name)).state.messages
        found = [(await stream.get_msg(name, number + 1)).data.decode() for number in range(count)]
        await client.close()
        return found
