"""DBOS: a durable workflow for each message.

Its step stores the result and its own end in one transaction of the application's database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not import postgres
from benchmarks.why_not.contract import Driver, Handle, Server, chunks

RESULTS = "CREATE TABLE IF NOT EXISTS results (id INTEGER PRIMARY KEY, value TEXT NOT NULL)"
QUEUE = "messages"


class Sqlite(Driver):
    """The default of its documentation, which recommends PostgreSQL for production."""

    name = "dbos-sqlite"
    durable = "fsync before each answer (its SQLite files: rollback journal, `synchronous=FULL`)"
    modules = ("dbos",)
    in_batches = False

    def urls(self) -> tuple[str, str]:
        """Of its own database, and of the application's."""
        start = f"sqlite:///{self.address}/{self.run}"
        return f"{start}-system.db", f"{start}-own.db"

    @contextmanager
    def launched(self) -> Iterator[Any]:
        """DBOS, launched: at this moment it takes up what a dead process of the same version had left."""
        dbos: Any = import_module("dbos").DBOS
        dbos(config={
            "name": "why-not", "system_database_url": self.urls()[0], "run_admin_server": False,
            "log_level": "ERROR", "application_version": "1",
        })  # fmt: skip
        dbos.launch()
        dbos.register_queue(QUEUE, polling_interval_sec=0.1, worker_concurrency=10)
        try:
            yield dbos
        finally:
            dbos.destroy()

    def datasource(self) -> Any:
        source = import_module("dbos").SQLAlchemyDatasource.create(self.urls()[1])
        with source.engine.begin() as connection:
            connection.exec_driver_sql(RESULTS)
        return source

    def create(self) -> None:
        logging.disable(logging.WARNING)
        self.datasource().engine.dispose()
        with self.launched():
            return

    def produce(self, values: Iterable[str], size: int) -> None:
        client = import_module("dbos").DBOSClient(system_database_url=self.urls()[0])
        for some in chunks(values, size):
            with client._sys_db.engine.begin() as connection:
                for value in some:
                    options = {
                        "queue_name": QUEUE,
                        "workflow_name": "work",
                        "workflow_id": value[:8],
                    }
                    client.enqueue_in_transaction(connection, options, value)
        client.destroy()

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        dbos: Any = import_module("dbos").DBOS
        source, text = self.datasource(), import_module("sqlalchemy").text
        insert = text("INSERT INTO results (value) VALUES (:value)")
        done, last = 0, time.monotonic()

        @source.transaction()  # type: ignore[untyped-decorator]
        def store(value: str) -> None:
            source.sql_session().execute(insert, {"value": value})

        @dbos.workflow(name="work")  # type: ignore[untyped-decorator]
        def work(value: str) -> None:
            nonlocal done, last
            store(handle(value))
            done, last = done + 1, time.monotonic()

        with self.launched():
            while done < limit and time.monotonic() - last <= idle_s:
                time.sleep(0.01)
            waiting = ["ENQUEUED", "PENDING"]
            while done >= limit and dbos.list_workflows(status=waiting, load_input=False, limit=1):
                time.sleep(0.01)

    def results(self) -> list[str]:
        with self.datasource().engine.connect() as connection:
            return list(
                connection.exec_driver_sql("SELECT value FROM results ORDER BY id").scalars()
            )


class Postgres(Sqlite):
    name = "dbos-postgres"
    durable = postgres.DURABLE
    modules = ("dbos", "psycopg")

    @classmethod
    def absent(cls) -> str | None:
        return super().absent() or postgres.absent()

    @classmethod
    def serve(cls, folder: Path) -> AbstractContextManager[Server]:
        return postgres.serve(folder)

    def urls(self) -> tuple[str, str]:
        start = f"postgresql+psycopg://postgres@/{self.run}"
        return (f"{start}_system?host={self.address}", f"{start}?host={self.address}")

    def datasource(self) -> Any:
        return import_module("dbos").SQLAlchemyDatasource.create(self.urls()[1])

    def create(self) -> None:
        postgres.create(self.address, self.run)
        super().create()
