"""The checker: a simple model of the log, compared with the file and the ledger after every step.

It reads raw rows and knows only Kafka's rules: a marker ends its producer's open transaction in the
partition, and data counts if it is outside of a transaction or followed by a COMMIT marker. It uses no code
of the engine, so it cannot share the engine's bugs. In a group that changes between the two protocols, no
partition may have two owners whose commits are accepted.
"""

from __future__ import annotations

import base64
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition
from tests.simulation.ledger import Ledger, transaction_of
from tests.simulation.model import (
    INPUT,
    INPUTS,
    MEMBERS,
    RESULTS,
    TABLE,
    Attendance,
    Commits,
    PartitionModel,
    SeenRow,
    StoredMember,
    assigned,
    members_of,
    require,
)


class Beliefs:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.members: dict[str, tuple[int, StoredMember]] = {}
        """The members, each with the generation or epoch of its commits."""
        self._checked = -1
        self._epoch: int | None = None
        """The group's epoch while it uses the new protocol."""
        self.seen = 0
        """The journal position up to which changes have been read."""
        self.changes_over = 0
        self._had: dict[str, set[int]] = {}
        """The last assignment of each classic member."""
        self._owned: dict[str, set[int]] = {}
        """What each member of the new protocol owns."""

    def take(self, members: Iterable[StoredMember], generation: int) -> None:
        self.members = {m.member_id: (m.member_epoch or generation, m) for m in members}
        self._checked = -1

    def check(self) -> None:
        """Check each member's partitions of its current generation, including former ones, whose commits
        may still be in flight: no two members may have the same. What a member has kept since an older
        epoch belongs to them (KIP-1251); what another one has got since does not."""
        if self._checked == self._ledger.beliefs:
            return
        self._checked = self._ledger.beliefs
        owners: dict[TopicPartition, str] = {}
        for (name, epoch), believed in sorted(self._ledger.believed.items()):
            generation, member = self.members.get(name, (epoch - 1, None))
            if member is None or epoch > generation:
                continue
            kept = {number for _, number in member.kept_since(epoch)}
            others = (
                m.owned - m.kept_since(epoch) for _, m in self.members.values() if m is not member
            )
            taken = {number for _, number in set().union(*others)}
            for tp in sorted(believed):
                if tp.partition in kept or (epoch == generation and tp.partition not in taken):
                    other = owners.setdefault(tp, name)
                    require(other == name, f"{tp} is believed owned by {other} and {name}")

    def add(self, changes: Iterable[tuple[int, str]]) -> None:
        """Follow the group's changes of protocol, given as position and detail of events."""
        for position, detail in changes:
            self.seen = position
            event = parsed(detail)
            if event["group_id"] != MEMBERS:
                continue
            for name in event["removed"]:
                self._had.pop(name, None)
            if event["group_type"] == "consumer":
                if self._epoch is None:
                    self._begin(event["members"])
                self._epoch = event["generation_id"]
                for m in event["members"]:
                    self._owned[m["member_id"]] = _owned(m)
                continue
            before, self._epoch = self._epoch, None
            waits = not any(member["has_joined"] for member in event["members"])
            if before is not None and event["members"] and waits:
                now = event["generation_id"]
                require(now == before, f"a group of epoch {before} is one of generation {now}")
            if before is not None or event["state"] == "Stable":
                self._had |= {
                    m["member_id"]: {
                        number for _, number in assigned(base64.b64decode(m["assignment"]))
                    }
                    for m in event["members"]
                }
            if before is not None and waits:
                for name, had in self._had.items():
                    owned = self._owned.get(name, had)
                    require(had == owned, f"{name} has {had} of {owned} when the group is classic")

    def _begin(self, members: Iterable[Mapping[str, Any]]) -> None:
        """Check that a group that changes its protocol keeps its classic members' last assignments."""
        self.changes_over += 1
        for member in members:
            has = _owned(member)
            had = self._had.get(member["member_id"], set())
            lost = had - has if member["protocols"] else set()
            require(not lost, f"{member['member_id']} had {lost} when the group changed over")


def _owned(member: Mapping[str, Any]) -> set[int]:
    """The partitions that no other member may get; the members share one topic."""
    topics = (topic for share in member["shares"] for topic in share["partitions"])
    return {number for _, numbers in topics for number in numbers}


_COMMITS: Final = (
    "SELECT position, kind, detail FROM journal WHERE position > ? "
    "AND kind IN ('OffsetsCommitted', 'TxnOffsetsCommitted') ORDER BY position"
)
_CHANGES: Final = (
    "SELECT position, detail FROM journal WHERE position > ? "
    "AND kind = 'GroupChanged' ORDER BY position"
)

_DELETED_GROUPS: Final = (
    "SELECT json_extract(detail, '$.group_id') FROM journal WHERE position > ? "
    "AND kind = 'OffsetsDeleted' "
    "AND json_extract(detail, '$.reason') IN ('group deleted', 'group expired')"
)
_LEASES: Final = (
    "SELECT g.group_id, g.state, g.deadline, g.members, s.member_id, s.expires FROM groups g "
    "JOIN group_sessions s ON s.group_id = g.group_id"
)
_LEASED: Final = "SELECT member_id FROM group_sessions WHERE group_id = ?"


class Checker:
    """Checks one file. Every method raises Violation."""

    def __init__(self, path: str, ledger: Ledger, attendance: Attendance) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._ledger = ledger
        self._attendance = attendance
        self._version = -1
        self.partitions: dict[TopicPartition, PartitionModel] = defaultdict(PartitionModel)
        self._where: dict[bytes, tuple[TopicPartition, int]] = {}
        """Every committed value, with the partition and offset where alone it may be."""
        self._newest: dict[tuple[TopicPartition, str], int] = {}
        self.outcomes: dict[str, str] = {}
        self._outputs: dict[tuple[str, int], set[int]] = defaultdict(set)
        """The input offsets with committed results, by group and input partition."""
        self._consumed: dict[tuple[str, int], int] = defaultdict(int)
        self._commits = Commits()
        self._read: dict[tuple[str, TopicPartition], int] = {}
        self._generations: dict[str, int] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}
        self.beliefs = Beliefs(ledger)
        self.stable_groups = 0
        """How often a group of KIP-848 was found stable."""
        self._groups_seen = 0
        """The journal position up to which deleted groups have been read."""
        self.reads: list[tuple[str, bool, TopicPartition, int, bytes]] = []
        """Records that readers have received since the last look: reader, whether it reads only committed
        records, partition, offset, content."""

    def close(self) -> None:
        self._file.close()

    def newest_position(self) -> int:
        """The end of the journal, which orders events before and after a response."""
        (position,) = self._file.execute("SELECT max(position) FROM journal").fetchone()
        return int(position or 0)

    # -- after every step -----------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Read the new rows, and check every invariant."""
        (version,) = self._file.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._file.execute("BEGIN")
            try:
                self._commits.add(self._file.execute(_COMMITS, (self._commits.seen,)).fetchall())
                self.beliefs.add(self._file.execute(_CHANGES, (self.beliefs.seen,)).fetchall())
                self._look_at_partitions()
                self._look_at_offsets()
                self._look_at_assignments()
                self._attendance.look(self._file.execute(_LEASES), now_ms)
            finally:
                self._file.execute("COMMIT")
        self.beliefs.check()
        self._check_acknowledgements()
        self._check_answers()
        self._check_reads()

    def _look_at_partitions(self) -> None:
        ended: set[str] = set()
        partitions = self._file.execute(
            "SELECT topic, partition, log_start_offset, log_end_offset, high_watermark, "
            "last_stable_offset FROM partition_offsets"
        ).fetchall()
        fresh: list[tuple[int, int, TopicPartition, SeenRow]] = []
        for topic, partition, _, log_end, _, _ in partitions:
            tp = TopicPartition(topic, partition)
            read = len(self.partitions[tp].rows)
            if read < log_end:
                fresh += [(row.position, row.offset, tp, row) for row in self._rows(tp, read)]
        for _, _, tp, row in sorted(fresh):
            self._apply(tp, self.partitions[tp], row, ended)
        for topic, partition, log_start, log_end, high_watermark, last_stable in partitions:
            tp = TopicPartition(topic, partition)
            model = self.partitions[tp]
            require(len(model.rows) == log_end, f"{tp}: {log_end - len(model.rows)} rows are lost")
            require(high_watermark == log_end, f"{tp}: high watermark {high_watermark}")
            model.log_start = log_start
            expected = model.expected_last_stable()
            require(
                last_stable == expected,
                f"{tp}: the last stable offset is {last_stable}, the rows say {expected}",
            )
            require(last_stable >= model.last_stable, f"{tp}: the last stable offset went back")
            model.last_stable = last_stable
        for key in ended:
            still = [
                tp
                for tp, model in self.partitions.items()
                for rows in model.open.values()
                if any(transaction_of(row.value or b"||") == key for row in rows)
            ]
            require(not still, f"transaction {key} has ended, but not in {still}")

    def _rows(self, tp: TopicPartition, offset: int) -> list[SeenRow]:
        return [
            SeenRow(*row)
            for row in self._file.execute(
                'SELECT "offset", value, producer_id, producer_epoch, sequence, is_transactional, '
                "control, position, key FROM records WHERE partition_id = (SELECT partition_id FROM "
                'partitions WHERE topic = ? AND partition = ?) AND "offset" >= ? ORDER BY "offset"',
                (*tp, offset),
            )
        ]

    def _apply(
        self, tp: TopicPartition, model: PartitionModel, row: SeenRow, ended: set[str]
    ) -> None:
        require(row.offset == len(model.rows), f"{tp}: offset {row.offset} after a gap")
        model.rows.append(row)
        pid = row.producer_id
        if pid >= 0:
            newest = model.epochs.get(pid, -1)
            require(row.producer_epoch >= newest, f"{tp}: producer {pid} wrote with an old epoch")
            model.epochs[pid] = row.producer_epoch
        if row.control is not None:
            self._end(tp, model, row, ended)
            return
        assert row.value is not None
        if pid >= 0:
            self._check_sequence(tp, model, row)
            self._check_not_fenced(tp, row)
        if not row.is_transactional:
            self._commit(tp, model, row)
            return
        key = transaction_of(row.value)
        require(key is not None, f"{tp}: {row.value!r} was sent outside of a transaction")
        require(key not in self.outcomes, f"{tp}: {row.value!r} came after its transaction's end")
        others = {transaction_of(r.value or b"||") for r in model.open.get(pid, ())} - {key}
        require(not others, f"{tp}: {row.value!r} joined the transaction {others}")
        model.open.setdefault(pid, []).append(row)

    def _check_sequence(self, tp: TopicPartition, model: PartitionModel, row: SeenRow) -> None:
        producer = (row.producer_id, row.producer_epoch)
        expected = model.sequences.get(producer, 0)
        require(
            row.sequence == expected,
            f"{tp}: producer {producer} stored sequence {row.sequence} after {expected - 1}",
        )
        model.sequences[producer] = expected + 1

    def _check_not_fenced(self, tp: TopicPartition, row: SeenRow) -> None:
        epoch, since = self._ledger.issued.get(row.producer_id, (0, 0))
        fenced = row.producer_epoch < epoch and row.position > since
        require(not fenced, f"{tp}: {row.value!r} was written by a fenced producer")
        gone = self._ledger.retired.get(row.producer_id)
        require(
            gone is None or row.position <= gone,
            f"{tp}: {row.value!r} was written under a producer id that has been replaced",
        )

    def _end(
        self, tp: TopicPartition, model: PartitionModel, marker: SeenRow, ended: set[str]
    ) -> None:
        assert marker.control is not None
        for row in model.open.pop(marker.producer_id, ()):
            assert row.value is not None
            key = transaction_of(row.value)
            assert key is not None
            outcome = self.outcomes.setdefault(key, marker.control)
            require(
                outcome == marker.control,
                f"{tp}: transaction {key} is {outcome} and {marker.control}",
            )
            if key not in ended:
                ended.add(key)
                record = self._ledger.transactions[key]
                if marker.control == "COMMIT" and record.group is not None:
                    for place, offset in record.offsets.items():
                        self._commits.count(record.group, place, offset)
            if marker.control == "COMMIT":
                self._commit(tp, model, row)
            else:
                model.aborted.add(row.offset)

    def _commit(self, tp: TopicPartition, model: PartitionModel, row: SeenRow) -> None:
        value = row.value
        assert value is not None
        require(
            value not in self._where, f"{value!r} is stored twice: {self._where.get(value)}, {tp}"
        )
        self._where[value] = (tp, row.offset)
        model.committed[row.offset] = value
        producer, transaction, number = value.decode().rsplit("|", 2)
        group = RESULTS.get(tp.topic)
        if group is not None:
            offset, partition = divmod(int(number), INPUTS)
            outputs = self._outputs[group, partition]
            require(
                offset not in outputs,
                f"{group}: {INPUT}-{partition} offset {offset} has two results",
            )
            outputs.add(offset)
            return
        order = (tp, producer if transaction == "-" else f"{producer}|{transaction}")
        newest = self._newest.get(order, -1)
        require(int(number) > newest, f"{tp}: {value!r} comes after number {newest}")
        self._newest[order] = int(number)

    def _look_at_offsets(self) -> None:
        offsets = {
            (group, TopicPartition(topic, partition)): offset
            for group, topic, partition, offset in self._file.execute(
                "SELECT group_id, topic, partition, committed_offset FROM consumer_offsets"
            )
        }
        for (group, tp), offset in offsets.items():
            if group in RESULTS.values():
                self._check_worker_offset(group, tp, offset)
            else:
                expected = self._commits.expected.get((group, tp))
                require(offset == expected, f"{group} {tp}: offset {offset}, expected {expected}")
        missing = set(self._commits.expected) - set(offsets)
        require(not missing, f"offsets of committed transactions are missing: {missing}")
        for (group, partition), outputs in self._outputs.items():
            consumed = self._consumed[group, partition]
            require(
                len(outputs) == consumed,
                f"{group}: {consumed} records of input {partition} were consumed, {len(outputs)} results "
                "stand",
            )

    def _check_worker_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        model, done = self.partitions[tp], self._read.get((group, tp), 0)
        require(offset >= done, f"{group} {tp}: the offset went back from {done} to {offset}")
        for consumed in range(done, offset):
            if consumed in model.committed:
                self._consumed[group, tp.partition] += 1
                require(
                    consumed in self._outputs[group, tp.partition],
                    f"{group}: {tp} has been passed at {consumed}, whose result is missing",
                )
        self._read[group, tp] = offset

    def _look_at_assignments(self) -> None:
        """Check that no two members of a generation have the same partition. The generation must not
        decrease, unless the group was deleted."""
        for (group,) in self._file.execute(_DELETED_GROUPS, (self._groups_seen,)):
            self._generations.pop(group, None)
            for key in [key for key in self._member_epochs if key[0] == group]:
                del self._member_epochs[key]
            if group == MEMBERS:
                self._ledger.believed.clear()
        self._groups_seen = self.newest_position()
        for group, generation, members, type_, assigned_for in self._file.execute(
            "SELECT group_id, generation_id, members, group_type, assignment_epoch FROM groups"
        ):
            before = self._generations.get(group, 0)
            require(generation >= before, f"{group}: generation {generation} follows {before}")
            self._generations[group] = generation
            given: set[tuple[str, int]] = set()
            stored = members_of(members)
            if group == MEMBERS:
                self.beliefs.take(stored, generation)
            if type_ == "consumer":
                self._look_at_members(group, stored, generation, assigned_for)
                continue
            for member in stored:
                twice = member.assigned & given
                require(not twice, f"{group}: {twice} were given to two members")
                given |= member.assigned

    def _look_at_members(
        self, group: str, members: Iterable[StoredMember], epoch: int, assigned_for: int
    ) -> None:
        """Check that no partition has two owners, that epochs grow in order, and that a stable group owns
        everything (KIP-848)."""
        require(assigned_for <= epoch, f"{group}: assignment {assigned_for} of epoch {epoch}")
        leases = {member for (member,) in self._file.execute(_LEASED, (group,))}
        ghosts = {member.member_id for member in members} - leases
        require(not ghosts, f"{group}: {ghosts} are members without a session")
        owned: set[tuple[int, int]] = set()
        for member in members:
            require(not member.owned & owned, f"{group}: {member.owned & owned} have two owners")
            owned |= member.owned
            key, now = (group, member.member_id), member.member_epoch
            before = self._member_epochs.get(key, 0)
            require(now < 0 or before <= now <= epoch, f"{key}: epoch {now} follows {before}")
            self._member_epochs[key] = max(before, now)
        reached = {(m.state, m.member_epoch) for m in members}
        if reached == {("Stable", epoch)} and epoch == assigned_for:
            require(len(owned) == INPUTS, f"{group} is stable and owns {sorted(owned)} alone")
            self.stable_groups += 1

    # -- promises to clients --------------------------------------------------------------------

    def _check_acknowledgements(self) -> None:
        fresh, self._ledger.fresh_acknowledgements = self._ledger.fresh_acknowledgements, []
        for value in fresh:
            tp, offset = self._ledger.acknowledged[value]
            where = self._where.get(value)
            require(where is not None, f"{value!r} was acknowledged and is not stored")
            require(offset < 0 or where == (tp, offset), f"{value!r} is at {where}, told {offset}")

    def _check_answers(self) -> None:
        fresh, self._ledger.fresh_answers = self._ledger.fresh_answers, []
        for key in fresh:
            record = self._ledger.transactions[key]
            stored = [value for value in record.sent if value in self._where]
            if record.answer == "committed":
                lost = set(record.sent) - set(stored)
                require(not lost, f"{key} was committed, but {sorted(lost)} are not there")
            else:
                require(not stored, f"{key} was {record.answer}, but {stored} are visible")

    def _check_reads(self) -> None:
        reads, self.reads = self.reads, []
        for reader, committed_only, tp, offset, value in reads:
            model = self.partitions[tp]
            stored = model.rows[offset].value if offset < len(model.rows) else None
            require(
                stored == value, f"{reader} {tp}: read {value!r} at {offset}, stored {stored!r}"
            )
            if committed_only:
                require(
                    offset in model.committed, f"{reader} {tp}: {value!r} is visible, uncommitted"
                )
            before = self._read.get((reader, tp), 0)
            require(offset >= before, f"{reader} {tp}: offset {offset} came twice")
            kept = self._kept(tp, model) if tp.topic == TABLE else None
            skipped = [
                row.offset
                for row in model.rows[max(before, model.log_start) : offset]
                if row.control is None
                and (not committed_only or row.offset in model.committed)
                and (kept is None or row.offset in kept)
            ]
            require(not skipped, f"{reader} {tp}: {skipped} were skipped")
            self._read[reader, tp] = offset + 1

    def _kept(self, tp: TopicPartition, model: PartitionModel) -> set[int]:
        """The offsets that compaction must keep."""
        return set(model.newest_by_key(model.last_stable).values())

    # -- audits ---------------------------------------------------------------------------------

    def audit(self, now_ms: int) -> None:
        """Check that the SQL views agree with the model."""
        self.look(now_ms)
        for tp, model in self.partitions.items():
            visible = {
                offset: value
                for offset, value in model.committed.items()
                if model.log_start <= offset < model.last_stable
            }
            shown = dict(
                self._file.execute(
                    'SELECT "offset", value FROM committed_records WHERE topic = ? AND partition = ?',
                    tp,
                )
            )
            if tp.topic == TABLE:
                self._check_compacted(tp, model, visible, shown)
                continue
            require(shown == visible, f"{tp}: committed_records differs from the rows")
            statuses = dict(
                self._file.execute(
                    'SELECT "offset", status FROM all_records WHERE topic = ? AND partition = ? '
                    "AND control IS NULL",
                    tp,
                )
            )
            for row in model.rows[model.log_start :]:
                if row.control is None:
                    status = "open"
                    if row.offset in model.committed:
                        status = "committed"
                    elif row.offset in model.aborted:
                        status = "aborted"
                    require(
                        statuses.get(row.offset) == status,
                        f"{tp}: all_records says {statuses.get(row.offset)} of the {status} "
                        f"offset {row.offset}",
                    )

    def _check_compacted(
        self,
        tp: TopicPartition,
        model: PartitionModel,
        visible: dict[int, bytes],
        shown: dict[int, bytes],
    ) -> None:
        """Check that each key's newest committed value is stored, and only committed values."""
        require(shown.items() <= visible.items(), f"{tp}: committed_records shows too much")
        missing = {offset for offset in self._kept(tp, model) if offset in visible} - set(shown)
        require(
            not missing, f"{tp}: the newest values of their keys are missing: {sorted(missing)}"
        )

    def finish(self, now_ms: int) -> None:
        """Check the end of a run, after every transaction has ended: nothing is open, and no acknowledged
        record is missing."""
        self.audit(now_ms)
        for tp, model in self.partitions.items():
            require(not model.open, f"{tp}: transactions are open after every deadline")
        for value in self._ledger.acknowledged:
            require(value in self._where, f"{value!r} was acknowledged and is not stored")
        for record in self._ledger.transactions.values():
            stored = sum(value in self._where for value in record.sent)
            whole = stored == 0 if self.outcomes.get(record.key) != "COMMIT" else stored > 0
            require(whole, f"{record.key}: {stored} of {len(record.sent)} records are visible")
