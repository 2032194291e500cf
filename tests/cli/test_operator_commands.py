"""What operators see and do: columns as Kafka's tools name them, and the story that `why` tells."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.cli.main import main
from eosdb.model.protocol.consumer_protocol import Subscription, encode_assignment
from tests.cases import each

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]
TP = TopicPartition("orders", 0)
MAIN: Any = main


@pytest.fixture
def stuck(run: Run, db_path: Path) -> Run:
    """Ten records, then a transaction that goes on, then three more; group billing stands at 4."""
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.broker.append(TP, RecordBatch([Record(b"k", b"v%d" % i) for i in range(10)]))
        me = db.broker.init_producer_id("shop-2", 600_000)
        db.broker.append(
            TP, RecordBatch([Record(value=b"open")], *me, 0, True), transactional_id="shop-2"
        )
        db.broker.append(TP, RecordBatch([Record(value=b"waits")] * 3))
        db.broker.offset_commit("billing", {TP: OffsetAndMetadata(4)})
    return run


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def columns(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()[0]


# -- why ----------------------------------------------------------------------------------------


def test_why_tells_who_holds_the_partition_what_waits_and_how_to_end_it(
    stuck: Run, db_path: Path
) -> None:
    told = stuck("why", "orders/0", "--group", "billing").stdout
    assert "readable up to offset 10 (the last stable offset), the log ends at 14" in told
    assert (
        "Held by transactional id shop-2, producer id 0, epoch 0; at the coordinator: Ongoing"
        in told
    )
    assert "It began at offset 10, " in told
    assert "Waiting behind it: 3 committed records and 1 record of open transactions" in told
    assert "It will be aborted by itself in 9 min 5" in told
    assert "Group billing stands at offset 4: 6 records to read now, 4 held back" in told
    command = next(line for line in told.splitlines() if "To end it now:" in line)
    assert f"eosdb --db {db_path} transactions abort orders/0 --start-offset 10" in command
    assert stuck(*command.split(f"{db_path} ")[1].split()).exit_code == 0
    after = stuck("why", "orders/0", "--group", "billing").stdout
    assert "No open transaction holds it back." in after
    assert "9 records to read now, 0 held back; 2 more offsets are markers or aborted data" in after


def test_why_of_a_file_tells_what_stands_still_and_how_to_end_it(stuck: Run, db_path: Path) -> None:
    told = stuck("why").stdout.splitlines()
    assert told[0].startswith("1. Group billing has no member and 6 records to read in orders/0.")
    assert told[1] == f"   eosdb groups describe {db_path} billing"
    assert told[2].startswith(
        "2. Transaction shop-2 has held back readers of orders/0 from offset 10 "
    )
    assert told[4] == (
        "All else is well: 0 groups with nothing left to read, 1 partition that nothing holds back."
    )
    assert stuck(*told[3].split()[1:]).exit_code == 0
    (row,) = rows(stuck("why", "--format", "json"))
    assert (row["Group"], row["Topic"], row["Partition"], row["Urgent"]) == (
        "billing",
        "orders",
        0,
        True,
    )
    assert stuck("why", "--group", "audit").stdout == ""
    stuck("groups", "delete", "billing", "--yes")
    assert stuck("why").stdout.startswith("No problems: 0 groups with nothing left to read, 2 ")


def test_why_shows_the_position_of_a_group_that_reads_alone(stuck: Run, db_path: Path) -> None:
    assert "Group billing stands at offset 4" in stuck("why", "orders").stdout
    with eosdb.connect(db_path, durability="off") as db:
        db.broker.offset_commit("audit", {TP: OffsetAndMetadata(4)})
    told = stuck("why", "orders").stdout
    assert "stands at" not in told
    assert "Group audit has 6 records left to read" in told


def test_why_of_a_topic_tells_of_the_partitions_that_matter(stuck: Run) -> None:
    told = stuck("why", "orders").stdout
    assert told.startswith("orders/0: ")
    assert "orders: nothing holds back partition 1, " in told


def test_why_of_a_topic_tells_which_groups_have_not_read_everything(
    stuck: Run, db_path: Path
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.broker.append(TopicPartition("orders", 1), RecordBatch([Record(value=b"v")] * 90))
        assert (
            "nothing holds back partition 1, and no group reads it" in stuck("why", "orders").stdout
        )
        db.broker.offset_commit("slow", {TopicPartition("orders", 1): OffsetAndMetadata(0)})
        told = stuck("why", "orders").stdout
        assert "read everything" not in told
        assert "  Group slow has 90 records left to read; it is Empty with 0 members" in told
        assert "  Group billing has 6 records left to read" in told
        db.broker.offset_commit("slow", {TopicPartition("orders", 1): OffsetAndMetadata(90)})
        assert "partition 1, and its readers have read everything" in stuck("why", "orders").stdout


def test_why_as_rows_has_every_fact(stuck: Run) -> None:
    (row,) = rows(stuck("why", "orders", "0", "--group", "billing", "--format", "json"))
    assert row["TransactionalId"] == "shop-2"
    assert (row["LastStableOffset"], row["LogEndOffset"]) == (10, 14)
    assert (row["WaitingCommitted"], row["WaitingOpen"]) == (3, 1)
    assert (row["Lag"], row["HeldBack"], row["Skipped"]) == (6, 4, 0)


@pytest.mark.parametrize(
    ("offset", "text"),
    [(0, "Its next records were deleted: the log begins at 5"), (99, "beyond the end of the log")],
)
def test_why_tells_of_a_group_outside_of_the_log(
    stuck: Run, db_path: Path, offset: int, text: str
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.broker.delete_records(TP, 5)
        db.broker.offset_commit("billing", {TP: OffsetAndMetadata(offset)})
    assert text in stuck("why", "orders/0", "--group", "billing").stdout


def test_why_tells_of_offsets_that_a_transaction_holds_and_of_readers(
    stuck: Run, db_path: Path
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        me = db.broker.init_producer_id("copier")
        db.broker.txn_offset_commit("copier", "billing", *me, {TP: OffsetAndMetadata(5)})
        joined = db.broker.join_group("audit", protocols=[("range", b"")])
        db.broker.sync_group("audit", joined.generation_id, joined.member_id)
    assert (
        "held by open transactions (copier)"
        in stuck("why", "orders/0", "--group", "billing").stdout
    )
    assert "The group is Stable" in stuck("why", "orders/0", "--group", "audit").stdout
    assert "Group nobody is not known" in stuck("why", "orders/0", "--group", "nobody").stdout


# -- transactions -------------------------------------------------------------------------------


def test_a_mistyped_transactional_id_is_not_created_to_be_fenced(stuck: Run) -> None:
    before = stuck("transactions", "list").stdout
    result = stuck("transactions", "fence", "nobody")
    assert result.exit_code == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id 'nobody'" in result.stderr
    assert stuck("transactions", "list").stdout == before


def test_a_transaction_is_aborted_by_its_id_alone(stuck: Run) -> None:
    done = stuck("transactions", "abort", "shop-2")
    assert done.stdout.startswith("aborted the transaction from offset 10 of orders-0")
    again = stuck("transactions", "abort", "shop-2")
    assert again.exit_code == 1
    assert "shop-2 has no transaction with records open" in again.stderr
    wrong = stuck("transactions", "abort", "shop-3")
    assert wrong.exit_code == 1
    assert "there is no transactional id 'shop-3' (did you mean 'shop-2'?)" in wrong.stderr
    assert stuck("transactions", "abort", "orders", "--start-offset", "10").exit_code == 2


def test_times_are_iso_in_tables_and_numbers_for_programs(stuck: Run) -> None:
    iso = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    for words, column in (
        (("describe", "shop-2"), "CurrentTransactionStartTimeMs"),
        (("describe", "shop-2", "--history"), "Timestamp"),
        (("describe-producers", "orders/0"), "LastTimestamp"),
    ):
        assert iso.search(stuck("transactions", *words).stdout), words
        found = rows(stuck("transactions", *words, "--format", "json"))
        assert type(found[0][column]) is int


def test_what_is_mistyped_gets_a_guess(stuck: Run) -> None:
    for words in (
        ("describe", "billin"),
        ("delete", "billin", "--yes"),
        ("reset-offsets", "billin", "--all-topics", "--to-earliest"),
    ):
        wrong = stuck("groups", *words)
        assert wrong.exit_code == 1
        assert "there is no group 'billin' (did you mean 'billing'?)" in wrong.stderr
    wrong = stuck("why", "--group", "billin")
    assert wrong.exit_code == 1
    assert "there is no group 'billin' (did you mean 'billing'?)" in wrong.stderr
    new = stuck("groups", "reset-offsets", "billin", "--topic", "orders", "--to-earliest")
    assert "group billin is new (did you mean 'billing'?)" in new.stderr
    wrong = stuck("sql", "SELECT * FROM comitted_records")
    assert "no such table: comitted_records (did you mean 'committed_records'?)" in wrong.stderr
    for query, told in (
        ("SELECT keyy FROM committed_texts", "no such column: keyy (did you mean 'key'?)"),
        ("SELECT * FROM orders", "it is a topic: FROM committed_texts WHERE topic = 'orders'"),
        (
            "SELECT json_extract('tea', '$.a')",
            "malformed JSON; json_valid(…) finds the values that are",
        ),
        ("SELECT * FROM zzz", "no such table: zzz\n"),
    ):
        assert told in stuck("sql", query).stderr
    stuck("views", "create", "orders", "--json", "total", "--name", "sales")
    wrong = stuck("views", "drop", "slaes")
    assert "there is no typed view 'slaes' (did you mean 'sales'?)" in wrong.stderr


def test_words_in_another_tools_order_are_told_ours(db_path: Path) -> None:
    file = str(db_path)
    run = CliRunner()
    assert run.invoke(main, ["init", file]).exit_code == 0
    for words, told in (
        (("fence", file, "shop-1"), "Did you mean 'transactions fence'?"),
        (("topics", "create", "orders", file), "FILE comes first"),
        (("sql", "SELECT 1", file), "FILE comes first"),
        (("consume", file, "orders", "--property", "print.key=true"), "--format json"),
    ):
        wrong = run.invoke(main, [*words])
        assert (wrong.exit_code, told in wrong.stderr) == (2, True), (words, wrong.stderr)


def test_a_topic_shows_its_scheduled_records(stuck: Run, db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        due = db.clock.time_ms() + 3_600_000
        db.producer().send("orders", b"later", partition=1, deliver_at=due).result()
    found = rows(stuck("topics", "describe", "orders", "--format", "json"))
    assert [row["Scheduled"] for row in found] == [0, 1]


def test_files_may_be_a_pattern_that_the_shell_has_expanded(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{name}.db") for name in "abc"]
    for name in names:
        eosdb.connect(name, durability="off").close()
    query = "SELECT count(*) AS n FROM committed_records"
    for words in (["--files", *names, query], [query, "--files", *names]):
        result = CliRunner().invoke(MAIN, ["sql", *words, "--format", "json"])
        assert json.loads(result.stdout) == [{"n": 0}], result.output


def test_transactions_are_listed_with_kafkas_columns_and_filters(stuck: Run) -> None:
    listing = stuck("transactions", "list")
    assert columns(listing).split() == [
        "TransactionalId", "Coordinator", "ProducerId", "TransactionState",
    ]  # fmt: skip
    assert len(rows(stuck("transactions", "list", "--producer-id", "0", "--format", "json"))) == 1
    assert rows(stuck("transactions", "list", "--producer-id", "9", "--format", "json")) == []
    assert (
        rows(stuck("transactions", "list", "--duration-filter", "60000", "--format", "json")) == []
    )
    assert rows(stuck("transactions", "list", "--in-state", "Empty", "--format", "json")) == []


@pytest.mark.parametrize(
    "where", [["orders/0"], ["orders", "0"], ["--topic", "orders", "--partition", "0"]]
)
def test_a_partition_is_named_as_one_likes(stuck: Run, where: list[str]) -> None:
    (row, *_) = rows(stuck("transactions", "describe-producers", *where, "--format", "json"))
    assert row["CurrentTransactionStartOffset"] == 10


@each(
    "where",
    [
        [],
        ["orders"],
        ["orders/x"],
        ["orders/0", "0"],
        ["orders", "--topic", "orders"],
        ["orders/-1"],
    ],
)
def test_a_partition_that_is_none_is_a_usage_error(stuck: Run, where: list[str]) -> None:
    result = stuck("transactions", "describe-producers", *where)
    assert result.exit_code == 2


def test_a_hanging_transaction_is_found_and_ended(stuck: Run, db_path: Path) -> None:
    assert rows(stuck("transactions", "find-hanging", "--format", "json")) == []
    tp = TopicPartition("orders", 1)
    with eosdb.connect(db_path, durability="off") as db:
        me = db.broker.init_producer_id("bad")
        batch = RecordBatch([Record(value=b"v")], *me, 0, True)
        db.broker.append(tp, batch, transactional_id="bad")
        db.broker.write_txn_markers(*me, False, [tp], 99, transaction_version=1)
        batch = RecordBatch([Record(value=b"v")], *me, 1, True)
        db.broker.append(tp, batch, transactional_id="bad")
        with pytest.raises(eosdb.TransactionCoordinatorFencedError):
            db.broker.end_txn("bad", *me, True)
    (row,) = rows(stuck("transactions", "find-hanging", "--format", "json"))
    assert (row["TransactionalId"], row["StartOffset"]) == ("bad", 2)
    assert "will not be aborted by itself" in stuck("why", "orders/1").stdout
    for narrowed in (["--topic", "orders", "--partition", "0"], ["--max-transaction-timeout", "1"]):
        assert rows(stuck("transactions", "find-hanging", *narrowed, "--format", "json")) == []
    assert stuck("transactions", "find-hanging", "--topic", "nowhere").exit_code == 1
    assert stuck("transactions", "find-hanging", "--partition", "0").exit_code == 2
    done = stuck("transactions", "abort", "orders/1", "--start-offset", "2")
    assert "committed, as the coordinator had decided" in done.stdout
    assert rows(stuck("transactions", "find-hanging", "--format", "json")) == []
    assert stuck("verify").exit_code == 0


def test_the_history_of_an_id_is_its_life_with_times(stuck: Run) -> None:
    history = rows(stuck("transactions", "describe", "shop-2", "--history", "--format", "json"))
    assert [row["Detail"] for row in history] == [
        "new -> Empty, producer 0 epoch 0",
        "Empty -> Ongoing, producer 0 epoch 0, orders/0",
        "orders/0 offsets 10 to 10",
    ]
    command = ("transactions", "describe", "shop-2", "--history", "--last", "1", "--format", "json")
    assert rows(stuck(*command)) == history[-1:]


# -- groups -------------------------------------------------------------------------------------


def test_groups_are_described_with_kafkas_columns_and_true_lag(stuck: Run) -> None:
    described = stuck("groups", "describe", "billing")
    assert columns(described).split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID", "HELD-BACK", "SKIPPED",
    ]  # fmt: skip
    assert described.stdout.splitlines()[1].split() == [
        "billing", "orders", "0", "4", "14", "6", "-", "-", "-", "4", "0",
    ]  # fmt: skip
    assert "has no active members" in described.stderr
    assert rows(stuck("groups", "list", "--state", "--format", "json")) == [
        {"GROUP": "billing", "STATE": "Empty", "TYPE": "classic"}
    ]


def test_members_of_a_group_are_listed(stuck: Run, db_path: Path) -> None:
    with (
        eosdb.connect(db_path, durability="off") as db,
        db.consumer("billing", client_id="me", group_instance_id="one") as consumer,
    ):
        consumer.subscribe(["orders"])
        (member,) = rows(stuck("groups", "describe", "billing", "--members", "--format", "json"))
        assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("me", 2)
        assert member["GROUP-INSTANCE-ID"] == "one"
        (state,) = rows(stuck("groups", "describe", "billing", "--state", "--format", "json"))
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", 1)
        refused = stuck(
            "groups", "reset-offsets", "billing", "--all-topics", "--to-latest", "--execute"
        )
        assert refused.exit_code == 1
        assert "NON_EMPTY_GROUP" in refused.stderr
        assert stuck("groups", "delete", "billing", "--yes").exit_code == 1


def test_offsets_are_reset_when_that_is_wanted(stuck: Run) -> None:
    reset = ("groups", "reset-offsets", "billing", "--topic", "orders:0", "--shift-by", "-3")
    dry = stuck(*reset)
    assert dry.stdout.splitlines()[1].split() == ["billing", "orders", "0", "1", "4"]
    assert "--execute" in dry.stderr
    assert stuck(*reset, "--execute").exit_code == 0
    assert stuck(*reset, "--dry-run").stdout.splitlines()[1].split()[3:] == ["0", "1"]
    to_time = (
        "groups",
        "reset-offsets",
        "billing",
        "--topic",
        "orders",
        "--to-datetime",
        "2000-01-01",
    )
    assert [row["NEW-OFFSET"] for row in rows(stuck(*to_time, "--format", "json"))] == [0, 0]


@each(
    "options",
    [
        [],
        ["--to-latest"],
        ["--topic", "orders"],
        ["--topic", "orders", "--to-latest", "--to-earliest"],
        ["--topic", "orders", "--all-topics", "--to-latest"],
        ["--topic", "orders", "--to-latest", "--dry-run", "--execute"],
        ["--topic", "orders:x", "--to-latest"],
        ["--topic", "orders", "--to-datetime", "yesterday"],
    ],
)
def test_a_reset_that_is_not_clear_is_a_usage_error(stuck: Run, options: list[str]) -> None:
    assert stuck("groups", "reset-offsets", "billing", *options).exit_code == 2


def test_members_that_came_over_the_wire_are_described_with_their_hosts(
    run: Run, db_path: Path
) -> None:
    wants = Subscription(("orders",)).encode()
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders")
        member_id = db.broker.join_group(
            "billing", client_id="java", client_host="/10.0.0.7", protocols=[("range", wants)]
        ).member_id
        gets = {member_id: encode_assignment([TP])}
        db.broker.sync_group("billing", 1, member_id, assignments=gets)
        for options in ((), ("--members",)):
            command = ("groups", "describe", "billing", *options, "--format", "json")
            (described,) = rows(run(*command))
            shown = [described[column] for column in ("CONSUMER-ID", "HOST", "CLIENT-ID")]
            assert shown == [member_id, "/10.0.0.7", "java"]


def test_offsets_and_groups_are_deleted(stuck: Run) -> None:
    assert stuck("groups", "delete", "billing", stdin="n\n").exit_code == 1
    offsets = ("groups", "delete", "billing", "--topic", "orders", "--yes")
    assert stuck(*offsets).stdout == "deleted the offsets of orders in group billing\n"
    assert stuck("groups", "delete", "nobody", "--yes").exit_code == 1


# -- the log, snapshots, the journal ------------------------------------------------------------


def test_the_dump_shows_batches_and_records_as_kafkas_does(stuck: Run) -> None:
    first, opened, last = rows(stuck("inspect", "log", "orders", "0", "--format", "json"))
    assert (first["baseOffset"], first["lastOffset"], first["count"]) == (0, 9, 10)
    assert (opened["isTransactional"], opened["isControl"]) == ("true", "false")
    assert (opened["producerId"], opened["baseSequence"], opened["transactionalId"]) == (
        0,
        0,
        "shop-2",
    )
    assert last["producerId"] == -1
    records = rows(
        stuck(
            "inspect",
            "log",
            "orders/0",
            "--from-offset",
            "8",
            "--print-data-log",
            "--format",
            "json",
        )
    )
    assert [r["offset"] for r in records] == [8, 9, 10, 11, 12, 13]
    assert (records[0]["keySize"], records[0]["valueSize"], records[0]["payload"]) == (1, 2, "v8")


def test_snapshots_are_taken_listed_and_shown(stuck: Run) -> None:
    (taken,) = rows(stuck("snapshots", "take", "--format", "json"))
    assert taken["SnapshotOffset"] == 14
    assert rows(stuck("snapshots", "list", "--format", "json"))[-1] == taken
    (entry,) = rows(stuck("snapshots", "show", "orders/0", "--format", "json"))
    assert entry["currentTxnFirstOffset"] == 10
    assert rows(stuck("inspect", "snapshots", "--format", "json"))[-1] == taken
    assert rows(stuck("inspect", "snapshots", "orders/0", "--format", "json")) == [entry]


def test_the_journal_is_filtered_and_begins_where_one_likes(stuck: Run) -> None:
    everything = rows(stuck("journal", "--last", "999", "--format", "json"))
    assert [row["Position"] for row in everything] == list(range(1, len(everything) + 1))
    some = rows(
        stuck("journal", "--kind", "BatchAppended", "--topic", "orders", "--format", "json")
    )
    assert len(some) == 3
    later = rows(stuck("journal", "--from-position", "3", "--format", "json"))
    assert later == everything[2:]
    assert stuck("journal", "--kind", "Nonsense").exit_code == 2
    assert stuck("journal", "--from-position", "3", "--last", "3").exit_code == 2


@pytest.mark.process
def test_the_journal_can_be_followed(stuck: Run, db_path: Path, start: Start) -> None:
    process = start("journal", "--last", "0", "--kind", "TopicCreated", "--follow")
    assert process.stdout is not None
    with eosdb.connect(db_path) as db:
        for number in range(300):
            db.admin.create_topic(f"made-{number}")
            readable, _, _ = select.select([process.stdout], [], [], 0.1)
            if readable:
                break
    line = process.stdout.readline()
    assert "TopicCreated" in line
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0


# -- access control -----------------------------------------------------------------------------


def test_access_is_given_seen_and_taken(stuck: Run) -> None:
    mine = ("--principal", "User:admin")
    for resource in ("cluster", "topic"):
        name = () if resource == "cluster" else ("--resource-name", "*")
        given = stuck(
            "acls", "add", "--principal", "User:*" if resource == "cluster" else "User:admin",
            "--operation", "alter" if resource == "cluster" else "all", "--resource-type", resource, *name,
        )  # fmt: skip
        assert given.exit_code == 0, given.output
    assert len(rows(stuck("acls", "list", "--format", "json"))) == 2
    assert len(rows(stuck("acls", "list", *mine, "--format", "json"))) == 1
    refused = stuck("topics", "create", "another")
    assert refused.exit_code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
    assert stuck("--run-as", "User:admin", "topics", "create", "another").exit_code == 0
    assert stuck("acls", "remove", *mine).exit_code == 0
    assert stuck("acls", "remove", *mine).exit_code == 1
    assert stuck("acls", "remove").exit_code == 2
