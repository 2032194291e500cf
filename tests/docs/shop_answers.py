"""What the queries of docs/sql.md must answer about the history in tests/docs/shop.py, by title.

Checked against the history by hand. Rows are in the order in which the query promises them. What
housekeeping does on the way (`INCIDENTAL`) is left out, for it is no part of the story.
"""

from __future__ import annotations

from typing import Any, Final

Rows = list[tuple[Any, ...]]

INCIDENTAL: Final = {"SnapshotTaken", "ProducersExpired"}

ANSWERS: Final[dict[str, Rows]] = {
    "Which records are at these offsets?": [
        (1, "43", '{"total":10}'),
        (2, "42", '{"total":100}'),
        (6, "43", None),
        (9, "50", '{"total":7}'),
    ],
    "What did the topic look like yesterday at noon?": [
        (0, 0, "42", '{"total":99}'),
        (0, 1, "43", '{"total":10}'),
        (0, 2, "42", '{"total":100}'),
        (0, 6, "43", None),
        (1, 0, "44", '{"total":20}'),
    ],
    "What is the last value of each key?": [
        (0, "42", '{"total":100}', 2, "2023-11-14 10:01:00"),
        (0, "50", '{"total":7}', 10, "2023-11-15 12:30:00"),
        (1, "44", '{"total":20}', 0, "2023-11-14 10:01:01"),
        (1, "46", '{"total":30}', 2, "2023-11-14 11:59:50"),
        (1, "47", '{"total":40}', 3, "2023-11-14 11:59:50"),
    ],
    "Which keys have the most records?": [
        ("42", 2, 25),
        ("43", 2, 12),
        ("50", 2, 22),
        ("44", 1, 12),
        ("46", 1, 12),
        ("47", 1, 12),
    ],
    "What do the headers say?": [
        (0, 0, 0, "source", "d2Vi"),
        (0, 0, 1, "trace", "dC0x"),
        (0, 0, 2, "empty", None),
    ],
    "How many records are committed, aborted or open?": [
        ("invoices", "committed", 3, 201),
        ("orders", "aborted", 3, 34),
        ("orders", "committed", 10, 106),
        ("orders", "open", 1, 11),
        ("prices", "committed", 1, 4),
    ],
    "How much was written per minute?": [
        ("2023-11-14 10:00", "orders", 2, 79),
        ("2023-11-14 10:01", "orders", 2, 29),
        ("2023-11-14 10:30", "orders", 1, 14),
        ("2023-11-14 11:00", "invoices", 1, 11),
        ("2023-11-14 11:59", "orders", 3, 30),
        ("2023-11-14 12:00", "prices", 3, 24),
        ("2023-11-14 13:00", "orders", 1, 13),
        ("2023-11-14 14:00", "orders", 1, 13),
        ("2023-11-15 12:30", "invoices", 3, 204),
        ("2023-11-15 12:30", "orders", 2, 26),
        ("2023-11-15 12:55", "orders", 3, 52),
    ],
    "Who blocks the last stable offset, and since when?": [
        ("orders", 1, 7, 2, 7, "late-1", "Ongoing", "2023-11-15 12:55:00", "2023-11-15 13:05:00"),
    ],
    "Which transactions are open, and where?": [
        ("late-1", "Ongoing", "2023-11-15 12:55:00", "orders", 1),
    ],
    "How long do commits take?": [
        (3, 2005, 20005, 20005),
    ],
    "Which transactional ids were fenced or timed out?": [
        ("2023-11-14 13:01:01", "slow-1", "timed out", 0, 1),
        ("2023-11-14 14:00:00", "shop-2", "fenced while open", 0, 1),
        ("2023-11-14 14:00:00", "shop-2", "taken over", 1, 2),
    ],
    "What share of the transactions was aborted, by hour?": [
        ("2023-11-14 10:00", 2, 1, 50.0),
        ("2023-11-14 11:00", 1, 0, 0.0),
        ("2023-11-14 12:00", 1, 0, 0.0),
        ("2023-11-14 13:00", 1, 1, 100.0),
        ("2023-11-14 14:00", 1, 1, 100.0),
    ],
    "Which producers have gaps in their sequences, or a new epoch?": [
        ("2023-11-15 12:30:00", "invoices", 0, 5, 1, 3, "new epoch", 0),
        ("2023-11-15 12:30:00", "invoices", 0, 6, 0, 4, "gap", 7),
    ],
    "Which messages are stored more than once?": [
        ("invoices", "r", "x" * 100, 2, 1, '["0-2","0-3"]'),
        ("orders", "50", '{"total":7}', 2, 1, '["0-9","0-10"]'),
    ],
    "How far behind is each group?": [
        ("audit", "invoices", 0, 0, 3, 0, 1, "2023-11-14 11:00:00"),
        ("billing", "orders", 0, 1, 5, 0, 0, "2023-11-14 11:00:00"),
        ("billing", "orders", 1, None, 3, 2, None, None),
        ("report", "orders", 0, 2, 4, 0, 0, "2023-11-14 11:00:00"),
        ("report", "orders", 1, 0, 3, 2, 0, "2023-11-14 11:00:00"),
    ],
    "Which groups commit offsets inside transactions?": [
        ("audit", 0, 1, None, "2023-11-14 11:00:00"),
        ("billing", 2, 0, "billing-1,late-1", "2023-11-15 12:55:00"),
        ("report", 0, 1, None, "2023-11-14 11:00:00"),
    ],
    "Which offsets wait for an open transaction?": [
        ("billing", "orders", 1, 4, "late-1", "Ongoing", "2023-11-15 12:55:00"),
    ],
    "What happened in the last hour?": [
        ("BatchAppended", 8, "2023-11-15 12:55:00"),
        ("TransactionStateChanged", 3, "2023-11-15 12:55:00"),
        ("LogStartOffsetMoved", 1, "2023-11-15 12:30:00"),
        ("PartitionsAdded", 1, "2023-11-15 12:55:00"),
        ("RecordsScheduled", 1, "2023-11-15 12:55:00"),
        ("TxnOffsetsCommitted", 1, "2023-11-15 12:55:00"),
    ],
    "What did retention, deletion and compaction take?": [
        ("2023-11-14 13:00:00", "prices", 0, "compaction", None, 2, 16),
        ("2023-11-15 12:30:00", "invoices", 0, "delete_records", 1, None, 11),
    ],
}
