"""Methods of `Database` and its `Admin` as coroutines, with their signatures.

Methods that read run in a small pool of threads; methods that write go through the writer's queue. So no
reader waits behind a write that waits for a long transaction of `db.begin()`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from eosdb.admin.admin import Admin
from eosdb.aio.worker import Home, Workers
from eosdb.aio.writer import Caller, WriterQueue

P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class Proxy(Generic[S_co]):
    """A synchronous object, and the threads that use it."""

    def __init__(self, home: Home, of: S_co, readers: Workers, writer: WriterQueue) -> None:
        self._home = home
        self._of = of
        self._readers = readers
        self._writer = writer
        self._caller = Caller()


def reading(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Proxy[S], P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method that reads."""

    @wraps(method)
    async def call(self: Proxy[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._home.check()
        return await self._readers.run(method, self._of, *args, **kwargs)

    return call


def listing(
    method: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[Proxy[S], P], Coroutine[Any, Any, list[T]]]:
    """Make a coroutine of a method that returns an iterator; it returns a list."""

    @wraps(method)
    async def call(self: Proxy[S], /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        self._home.check()
        return await self._readers.run(lambda: list(method(self._of, *args, **kwargs)))

    return call


def writing(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Proxy[S], P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method that writes. A cancelled call still completes."""

    @wraps(method)
    async def call(self: Proxy[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._home.check_may_write()
        return await self._writer.call(self._caller, partial(method, self._of, *args, **kwargs))

    return call


class AsyncAdmin(Proxy[Admin]):
    """The methods of `db.admin` as coroutines. Those that return iterators there return lists here."""

    abort_transaction = writing(Admin.abort_transaction)
    alter_group_config = writing(Admin.alter_group_config)
    alter_topic_config = writing(Admin.alter_topic_config)
    cancel_scheduled = writing(Admin.cancel_scheduled)
    consistent_cut = reading(Admin.consistent_cut)
    create_acls = writing(Admin.create_acls)
    create_partitions = writing(Admin.create_partitions)
    create_topic = writing(Admin.create_topic)
    create_view = writing(Admin.create_view)
    delete_acls = writing(Admin.delete_acls)
    delete_topic = writing(Admin.delete_topic)
    describe_broker_config = reading(Admin.describe_broker_config)
    describe_group_config = reading(Admin.describe_group_config)
    describe_group_offsets = reading(Admin.describe_group_offsets)
    describe_snapshot = reading(Admin.describe_snapshot)
    describe_topic = reading(Admin.describe_topic)
    describe_topic_config = reading(Admin.describe_topic_config)
    diagnose = reading(Admin.diagnose)
    drop_view = writing(Admin.drop_view)
    dump_log = listing(Admin.dump_log)
    fence_producer = writing(Admin.fence_producer)
    find_hanging_transactions = reading(Admin.find_hanging_transactions)
    journal = listing(Admin.journal)
    list_acls = reading(Admin.list_acls)
    list_scheduled = reading(Admin.list_scheduled)
    list_snapshots = reading(Admin.list_snapshots)
    list_topics = reading(Admin.list_topics)
    list_views = reading(Admin.list_views)
    open_transactions = reading(Admin.open_transactions)
    overview = reading(Admin.overview)
    partition_offsets = reading(Admin.partition_offsets)
    remove_user = writing(Admin.remove_user)
    reset_offsets = writing(Admin.reset_offsets)
    scan = listing(Admin.scan)
    set_password = writing(Admin.set_password)
    stats = reading(Admin.stats)
    timeline = reading(Admin.timeline)
    transaction_history = reading(Admin.transaction_history)
