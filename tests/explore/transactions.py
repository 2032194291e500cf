"""Transactions: two producers with one transactional id or two, and all that may happen to their requests.

A request may be lost, its answer may be lost, and a copy of it may arrive at any later time. Transactions
time out, ids expire, the coordinator crashes between the two steps of an end, and the file is restored to
an older copy while the producers live on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from eosdb import Record, RecordBatch, TopicPartition, errors
from eosdb.coordinator.transactions import decisions, state
from eosdb.model import requests
from eosdb.model.requests import Request
from eosdb.model.values import ConsumerGroupMetadata, OffsetAndMetadata
from tests.explore.box import Box
from tests.explore.core import Move, World, places, with_client
from tests.simulation.model import require

TOPIC: Final = "t"
_TIMEOUT_MS: Final = 60_000
_EXPIRY_MS: Final = 7 * 86_400_000 + 1
_AGAIN: Final = (
    errors.ConcurrentTransactionsError,
    errors.NotEnoughReplicasError,
    errors.TransactionCoordinatorFencedError,
)
_FATAL: Final = (errors.ProducerFencedError, errors.InvalidProducerIdMappingError)
_TABLES: Final = (
    "SELECT transactional_id, 'pid-' || printf('%015d', producer_id), producer_epoch, last_producer_epoch, "
    "'pid-' || printf('%015d', previous_producer_id), state, start_time - ?1, partitions, groups, "
    "'pid-' || printf('%015d', next_producer_id), transaction_version FROM transactional_ids WHERE ?1",
    "SELECT partition_id, 'pid-' || printf('%015d', producer_id), producer_epoch, coordinator_epoch >= 0, "
    "current_txn_start_offset, last_sequence, last_offset FROM partition_producers",
    "SELECT 'end', partition_id, log_end_offset, last_stable_offset, first_unstable_offset FROM partitions",
    """SELECT partition_id, "offset", control, 'pid-' || printf('%015d', producer_id), producer_epoch,
    sequence, value FROM records""",
    "SELECT 'next', 'pid-' || printf('%015d', value) FROM counters WHERE name = 'next_producer_id'",
    "SELECT group_id, topic, partition, committed_offset FROM group_offsets",
    """SELECT 'pid-' || printf('%015d', producer_id), group_id, partition, "offset", producer_epoch
    FROM pending_group_offsets""",
    """SELECT partition_id, "offset", due - ?1, producer_id >= 0 FROM eosdb_scheduled WHERE ?1""",
)
_RISING: Final = """
SELECT 'lives', count(*) FROM eosdb_lives UNION ALL
SELECT 'last stable offset of ' || partition_id, last_stable_offset FROM partitions
UNION ALL SELECT 'end of ' || partition_id, log_end_offset FROM partitions
UNION ALL SELECT 'epoch of ' || producer_id, producer_epoch FROM transactional_ids
UNION ALL SELECT 'epoch of ' || producer_id || ' in ' || partition_id, producer_epoch
    FROM partition_producers
UNION ALL SELECT 'coordinator epoch of ' || producer_id || ' in ' || partition_id, coordinator_epoch
    FROM partition_producers
"""

_RECORDS: Final = (
    "SELECT partition_id, producer_id, producer_epoch, control, value FROM records "
    'ORDER BY partition_id, "offset"'
)


def tables(box: Box, queries: Iterable[str] = _TABLES) -> Iterable[object]:
    """The rows that the future depends on."""
    now = box.clock.time_ms()
    for query in queries:
        yield from box.rows(query, *([now] if "?1" in query else []))


class Client(NamedTuple):
    """A producer: its next step, and what it knows."""

    name: str
    step: str = "init"
    pair: tuple[int, int] | None = None
    transaction: int = 1
    attempt: int = 1
    sequences: tuple[int, ...] = ()
    is_sent: bool = False
    committed: tuple[int, ...] = ()
    """The transactions whose commit was acknowledged."""


class State(NamedTuple):
    clients: tuple[Client, ...]
    sent: frozenset[tuple[Any, ...]] = frozenset()
    """Requests of which a copy may arrive later."""
    repeats: int = 0
    losses: int = 0
    timeouts: int = 0
    crashes: int = 0
    aborts: int = 0
    expiries: int = 0
    copies: int = 0
    copy: Any = None


class Transactions(World):
    state = State
    config: ClassVar[dict[str, Any]] = {"transaction_unit_partitions": 0}
    versions: tuple[int, ...] = (2, 2)
    one_id = True
    partitions = 1
    transactions = 1
    attempts = 2
    offsets = False
    last_epoch = 0

    def prepare(self) -> None:
        self.box.db.admin.create_topic(TOPIC, self.partitions)
        self.names = "ab"[: len(self.versions)]
        self.symmetries = places(self.versions)
        if self.last_epoch:
            for module in (decisions, state):
                self.box.patch(module, "LAST_CLIENT_EPOCH", self.last_epoch)

    def start(self) -> State:
        clients = tuple(Client("~" + n, sequences=(0,) * self.partitions) for n in self.names)
        return State(clients, **self.limits)

    # -- a client ------------------------------------------------------------------------------------

    def _version(self, name: str) -> int:
        return self.versions[self.names.index(name[1])]

    def _steps(self, name: str) -> list[str]:
        classic = self._version(name) == 1
        steps = (["join"] * classic + ["offsets"]) * self.offsets
        for p in range(self.partitions):
            steps += [f"add{p}"] * classic + [f"produce{p}"]
        return [*steps, "commit"]

    def _asks(self, c: Client) -> tuple[Any, ...] | None:
        """What the client asks next, as a value."""
        if c.step in ("done", "dead"):
            return None
        number = c.sequences[int(c.step[-1])] if c.step.startswith("produce") else 0
        return c.name, c.step, c.pair, number, c.transaction

    def _request(self, asked: tuple[Any, ...]) -> Request[Any]:
        name, step, pair, number, transaction = asked
        p, e = pair or (-1, -1)
        id_, version = "id" if self.one_id else f"id{name}", self._version(name)
        if step == "init":
            return requests.InitProducerId(id_, _TIMEOUT_MS, p, e)
        if step in ("commit", "abort"):
            return requests.EndTxn(id_, p, e, step == "commit", transaction_version=version)
        if step == "join":
            return requests.AddOffsetsToTxn(id_, p, e, f"g{name}")
        if step == "offsets":
            group = ConsumerGroupMetadata(f"g{name}")
            offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(transaction)}
            return requests.TxnOffsetCommit(
                transactional_id=id_, producer_id=p, producer_epoch=e, group=group,
                offsets=offsets, transaction_version=version,
            )  # fmt: skip
        tp = TopicPartition(TOPIC, int(step[-1]))
        if step.startswith("add"):
            return requests.AddPartitionsToTxn(id_, p, e, [tp])
        batch = RecordBatch(
            [Record(None, _value(name, transaction, tp.partition))], p, e, number, True
        )
        return requests.Produce({tp: batch}, transactional_id=id_, transaction_version=version)

    def _answered(self, c: Client, answer: Any) -> Client:
        """The client after the answer to its request."""
        c = c._replace(is_sent=False)
        if c.step.startswith("produce") and not isinstance(answer, errors.EosdbError):
            (result,) = answer.values()
            answer = result.error or answer
        steps = self._steps(c.name)
        if isinstance(answer, _AGAIN):
            return c
        ends = c.step in ("init", "commit", "abort")
        if isinstance(answer, errors.EosdbError):
            require(isinstance(answer, errors.ApiError), f"{type(answer).__name__}: {answer}")
            return c._replace(step="dead" if ends or isinstance(answer, _FATAL) else "abort")
        begun = (0,) * self.partitions
        is_new = self._version(c.name) == 2
        if c.step == "init":
            return c._replace(step=steps[0], pair=tuple(answer), sequences=begun)
        if not ends:
            after = list(c.sequences)
            if c.step.startswith("produce"):
                after[int(c.step[-1])] += 1
            return c._replace(step=steps[steps.index(c.step) + 1], sequences=tuple(after))
        if is_new:
            c = c._replace(pair=tuple(answer), sequences=begun)
        if c.step == "commit":
            c = c._replace(committed=(*c.committed, c.transaction))
            is_last = c.transaction == self.transactions
            step = "done" if is_last else steps[0]
            return c._replace(step=step, transaction=c.transaction + (not is_last), attempt=1)
        if c.attempt == self.attempts:
            return c._replace(step="done")
        # After an error a producer of version 1 takes another epoch (KIP-360).
        return c._replace(step=steps[0] if is_new else "init", attempt=c.attempt + 1)

    # -- moves ---------------------------------------------------------------------------------------

    def moves(self, s: State) -> Iterable[Move]:
        is_over = True
        for i, c in enumerate(s.clients):
            asked = self._asks(c)
            if asked is None:
                continue
            is_over = False
            yield ("ask", i)
            if s.losses:
                yield ("lose the answer", i)
            if s.losses and s.repeats and c.step.startswith("produce"):
                yield ("give up", i)
            if s.aborts and c.step == "commit" and not c.is_sent:
                yield ("abort", i)
            if s.crashes and c.step in ("init", "commit", "abort"):
                yield ("crash between", i)
        if s.repeats:
            for asked in sorted(s.sent, key=repr):
                yield ("repeat", asked)
        if s.timeouts or is_over:
            yield ("time-out",)
        if s.crashes:
            yield ("crash",)
        if s.expiries:
            yield ("expire",)

    def make(self, s: State, move: Move) -> State | None:
        what, box = move[0], self.box
        if what == "repeat":
            answer = box.ask(self._request(move[1]))
            return s._replace(repeats=s.repeats - 1)
        if len(move) == 2:
            i = move[1]
            c = s.clients[i]
            asked = self._asks(c)
            assert asked is not None
            if what == "abort":
                return with_client(s, c._replace(step="abort"))._replace(aborts=s.aborts - 1)
            kept = s._replace(sent=s.sent | {asked}) if s.repeats else s
            if what == "give up":  # The request may arrive later.
                return with_client(kept, c._replace(step="abort"))._replace(losses=s.losses - 1)
            request = self._request(asked)
            if what == "crash between":
                if not box.crash_between(request):
                    return None
                box.crash()
                return with_client(kept, c._replace(is_sent=True))._replace(crashes=s.crashes - 1)
            answer = box.ask(request)
            if what == "lose the answer":
                return with_client(kept, c._replace(is_sent=True))._replace(losses=s.losses - 1)
            return with_client(kept, self._answered(c, answer))
        if what == "time-out":
            if not box.rows("SELECT 1 FROM transactional_ids WHERE state = 'Ongoing'"):
                return None
            box.advance(_TIMEOUT_MS + 1)
            return s._replace(timeouts=max(s.timeouts - 1, 0))
        if what == "expire":
            box.advance(_EXPIRY_MS)
            return s._replace(expiries=s.expiries - 1)
        box.crash()
        return s._replace(crashes=s.crashes - 1)

    def restored(self, state: State) -> State:
        found = fates(self.box)
        for c in state.clients:  # What was acknowledged later is lost.
            still = tuple(n for n in c.committed if "C" in found[_value(c.name, n, 0)])
            state = with_client(state, c._replace(committed=still))
        return state

    # -- states --------------------------------------------------------------------------------------

    def tables(self) -> Iterable[object]:
        return tables(self.box)

    def parts(self, s: State) -> Iterable[object]:
        yield s[2:-1]
        for asked in s.sent:
            yield "sent", _named(asked)
        for c in s.clients:
            yield _named(c)

    def is_done(self, s: State) -> bool:
        over = all(c.step in ("done", "dead") for c in s.clients)
        return over and not self.box.rows(
            "SELECT 1 FROM partitions WHERE last_stable_offset < log_end_offset"
        )

    def look(self) -> dict[str, int]:
        return dict(self.box.rows(_RISING))

    def check(self, s: State, before: dict[str, int]) -> None:
        now = self.look()
        for what, value in before.items() if now["lives"] == before["lives"] else ():
            require(
                now.get(what, value) >= value, f"the {what} falls from {value} to {now.get(what)}"
            )
        pairs = [c.pair for c in s.clients if c.pair is not None and c.step != "dead"]
        require(len({*pairs}) == len(pairs), f"two producers have the same epoch: {pairs}")
        first = self.start()
        is_alone = len(s.clients) == 1 and (s.repeats, s.timeouts, s.expiries, now["lives"]) == (
            first.repeats, first.timeouts, first.expiries, 0
        )  # fmt: skip
        require(not is_alone or s.clients[0].step != "dead", "a producer is fenced by nobody")
        outcomes = fates(self.box)
        for record, found in outcomes.items():
            require(found.count("C") <= 1, f"{record!r} is committed twice")
        for c in s.clients:
            for number in range(1, self.transactions + 1):
                counts = {
                    outcomes[_value(c.name, number, p)].count("C") for p in range(self.partitions)
                }
                require(len(counts) == 1, f"half of transaction {number} of {c.name} is committed")
                if number in c.committed:
                    require(counts == {1}, f"the acknowledged {number} of {c.name} is lost")
            if self.offsets:
                self._check_offset(c, outcomes)

    def _check_offset(self, c: Client, outcomes: dict[bytes, list[str]]) -> None:
        numbers = range(1, self.transactions + 1)
        expected = max((n for n in numbers if "C" in outcomes[_value(c.name, n, 0)]), default=0)
        sql = "SELECT committed_offset FROM group_offsets WHERE group_id = ?"
        found = sum(offset for (offset,) in self.box.rows(sql, f"g{c.name}"))
        require(found == expected, f"{c.name} has committed {expected}, the offset is {found}")

    def check_more(self, s: State) -> None:
        super().check_more(s)
        visible = {value for value, found in fates(self.box).items() if "C" in found}
        for (number,) in self.box.rows("SELECT partition FROM partitions WHERE partition >= 0"):
            tp = TopicPartition(TOPIC, number)
            fetched = self.box.db.broker.fetch_data(tp, 0, isolation_level="read_committed")
            read = [*fetched.rows.value]
            sql = 'SELECT value FROM committed_records WHERE partition = ? ORDER BY "offset"'
            seen = [value for (value,) in self.box.rows(sql, number)]
            require(read == seen, f"fetch reads {read}, the view {seen}")
            require({*read} <= visible, f"{read} are read, {visible} are committed")


def _value(name: str, transaction: int, partition: int) -> bytes:
    return f"{name}{transaction}.{partition}".encode()


def _named(it: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tuple with its producer id by name."""
    pair = it[2]
    return it if pair is None else (*it[:2], f"pid-{pair[0]:015}", pair[1], *it[3:])


def fates(box: Box) -> dict[bytes, list[str]]:
    """For each value the fates of its records, by the rows and Kafka's rules alone: C, A or O (open)."""
    found: dict[bytes, list[str]] = defaultdict(list)
    is_open: dict[tuple[int, int], list[tuple[bytes, int]]] = defaultdict(list)
    newest: dict[tuple[int, int], int] = {}
    for partition, pid, epoch, control, value in box.rows(_RECORDS):
        at = partition, pid
        require(epoch >= newest.get(at, epoch), f"producer {pid} writes with the old epoch {epoch}")
        newest[at] = epoch
        if control is None:
            require(all(e == epoch for _, e in is_open[at]), f"two epochs of {pid} write at once")
            is_open[at].append((value, epoch))
        else:
            for data, _ in is_open.pop(at, ()):
                found[data].append(control[0])
    for rows in is_open.values():
        for data, _ in rows:
            found[data].append("O")
    return found
