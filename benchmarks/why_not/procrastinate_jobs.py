"""procrastinate: jobs in PostgreSQL.

A task stores its result in the same database; that the job is done is a commit of the worker's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not import postgres
from benchmarks.why_not.contract import Driver, Handle, Server, chunks


class Procrastinate(Driver):
    name = "procrastinate"
    durable = postgres.DURABLE
    modules = ("procrastinate", "psycopg")
    in_batches = False

    @classmethod
    def absent(cls) -> str | None:
        return super().absent() or postgres.absent()

    @classmethod
    def serve(cls, folder: Path) -> AbstractContextManager[Server]:
        return postgres.serve(folder)

    def app(self) -> Any:
        procrastinate: Any = import_module("procrastinate")
        connector = procrastinate.PsycopgConnector(conninfo=postgres.dsn(self.address, self.run))
        return procrastinate.App(connector=connector)

    def create(self) -> None:
        postgres.create(self.address, self.run)
        with self.app().open() as app:
            app.schema_manager.apply_schema()

    def produce(self, values: Iterable[str], size: int) -> None:
        with self.app().open() as app:
            job = app.configure_task("work", lock="in-order")
            for some in chunks(values, size):
                if size == 1:
                    job.defer(value=some[0])
                else:
                    job.batch_defer(*({"value": value} for value in some))

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        app, file = self.app(), postgres.connect(self.address, self.run)
        done, last = 0, time.monotonic()

        @app.task(name="work")
        def work(value: str) -> None:
            nonlocal done, last
            file.execute("INSERT INTO results (value) VALUES (%s)", (handle(value),))
            done, last = done + 1, time.monotonic()

        async def run() -> None:
            async with app.open_async():
                while done < limit and time.monotonic() - last <= idle_s:
                    # Jobs of workers that are no longer heard of; a periodic task's work.
                    stalled = await app.job_manager.get_stalled_jobs(
                        seconds_since_heartbeat=self.lease_s
                    )
                    for job in stalled:
                        await app.job_manager.retry_job(job)
                    await app.run_worker_async(wait=False, install_signal_handlers=False)

        asyncio.run(run())

    def results(self) -> list[str]:
        return postgres.results(self.address, self.run)

    def inputs(self) -> list[str]:
        with postgres.connect(self.address, self.run) as file:
            sql = "SELECT args ->> 'value' FROM procrastinate_jobs ORDER BY id"
            return [value for (value,) in file.execute(sql)]
