"""eosdb for asyncio, with aiokafka's method names: the same clients, run in worker threads.

Every coroutine may be cancelled: a cancelled call has either no effect or its full effect.
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
