"""eosdb for asyncio, in the shapes that aiokafka has: the same clients, run in worker threads.

Every coroutine may be cancelled: it is then as if it had not been called, or as if it had completed.
"""

from eosdb.aio.block import AsyncUserTransaction
from eosdb.aio.consumer import AsyncConsumer
from eosdb.aio.database import AsyncDatabase, Rows, connect
from eosdb.aio.producer import AsyncProducer
from eosdb.aio.proxies import AsyncAdmin

__all__ = [
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDatabase",
    "AsyncProducer",
    "AsyncUserTransaction",
    "Rows",
    "connect",
]
