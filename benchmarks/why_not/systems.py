"""All of them, in the order of the report, imported when asked for: a child's memory is that of one."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from benchmarks.why_not.contract import Driver

_PLACES: Final = {
    "eosdb": "eosdb_file.Full",
    "eosdb-normal": "eosdb_file.Normal",
    "table": "table.Table",
    "table-normal": "table.Normal",
    "table-claims": "table.Claims",
    "litequeue": "lite_queue.LiteQueue",
    "procrastinate": "procrastinate_jobs.Procrastinate",
    "dbos-sqlite": "dbos_workflows.Sqlite",
    "dbos-postgres": "dbos_workflows.Postgres",
    "kafka": "kafka_broker.Broker",
    "redis": "redis_streams.RedisStreams",
    "nats": "nats_jetstream.JetStream",
}
NAMES: Final = tuple(_PLACES)


def driver(name: str) -> type[Driver]:
    module, _, kind = _PLACES[name].partition(".")
    return cast("type[Driver]", getattr(import_module(f"benchmarks.why_not.{module}"), kind))
