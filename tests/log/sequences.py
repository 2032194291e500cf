"""What a partition answers a producer's batch, after what came before: Kafka's tables (ProducerAppendInfo,
ProducerStateEntry) and what docs/semantics.md adds. The decision is held to it, and so is the broker."""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.log.producer_state import Incoming, ProducerStateEntry
from tests.log.producer_batches import TOP, Row, batch, entry

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"
WRONG_STATE = "INVALID_TXN_STATE"
FIRST = 100
"""The offset of the first record."""
SECOND_ROUND = 2**31


@dataclass(frozen=True, slots=True)
class Past:
    """What came before: batches by serial and count; what was deleted; whether the state has expired then,
    and a marker come."""

    sent: tuple[tuple[int, int], ...] = ()
    deleted: int = 0
    """So many batches, from the beginning on."""
    is_expired: bool = False
    has_marker: bool = False

    @property
    def batches(self) -> list[Row]:
        made, offset = [], FIRST
        for serial, count in self.sent:
            made.append(Row(serial, count, offset))
            offset += count
        return made

    @property
    def rows(self) -> list[Row]:
        return self.batches[self.deleted :]

    @property
    def known(self) -> ProducerStateEntry | None:
        if self.is_expired or not self.sent:
            return entry([]) if self.has_marker else None
        return entry(self.batches[-5:])


@dataclass(frozen=True, slots=True)
class Case:
    past: Past
    incoming: Incoming
    answer: str
    name: str


_TWENTY = tuple((serial, 2) for serial in range(0, 20, 2))
"""Sequences 0 to 19 at offsets 100 to 119; 10 to 19 are remembered."""
ALL, ONE = Past(_TWENTY), Past(((5, 2),))
"""KIP-360 lets a producer begin anywhere."""
ROWS_DELETED, FEW = Past(_TWENTY, deleted=10), Past(_TWENTY[:2])
EXPIRED = Past(_TWENTY, deleted=5, is_expired=True)
MARKER, NOTHING = Past(has_marker=True), Past()
_WRAP = (TOP - 1, 2)
ACROSS, BEFORE_THE_WRAP = Past(((TOP - 1, 4),)), Past(((TOP - 2, 1),))
AFTER = Past(((TOP - 3, 2), _WRAP, (TOP + 1, 2)))
LATER = Past((_WRAP, *((TOP + 1 + serial, 2) for serial in range(0, 10, 2))))
SECOND = Past((_WRAP, *((TOP + 1 + serial, 2) for serial in range(0, 14, 2))))

CASES: tuple[Case, ...] = tuple(Case(past, *case) for past, cases in {
    ALL: (
        (batch(20), "new at 20", "the next sequence"),
        (batch(20, 500), "new at 20", "the next sequence, many records"),
        (batch(21), OUT_OF_ORDER, "a gap of one"),
        (batch(20_000), OUT_OF_ORDER, "a wide gap"),
        (batch(18, 2), "stored at 118 to 119", "the last batch again"),
        (batch(16, 2), "stored at 116 to 117", "the last but one again"),
        (batch(14, 2), "stored at 114 to 115", "the third last again"),
        (batch(12, 2), "stored at 112 to 113", "the fourth last again"),
        (batch(10, 2), "stored at 110 to 111", "the fifth last again"),
        (batch(8, 2), "stored at 108 to 109", "the sixth last, found as rows"),
        (batch(0, 2), "stored at 100 to 101", "the first, found as rows"),
        (batch(18, 1), OUT_OF_ORDER, "first half of the last batch"),
        (batch(19, 1), OUT_OF_ORDER, "second half of the last batch"),
        (batch(18, 3), OUT_OF_ORDER, "the last batch and one more"),
        (batch(19, 2), OUT_OF_ORDER, "half of the last batch and one more"),
        (batch(16, 4), OUT_OF_ORDER, "the last two batches as one"),
        (batch(10, 10), OUT_OF_ORDER, "all remembered ones as one"),
        (batch(10, 1), OUT_OF_ORDER, "half of the oldest remembered one"),
        (batch(9, 2), OUT_OF_ORDER, "into the window from below"),
        (batch(8, 4), OUT_OF_ORDER, "the sixth last and the fifth last as one"),
        (batch(0, 30), OUT_OF_ORDER, "everything and more"),
        (batch(4, 1), OUT_OF_ORDER, "a part below the window"),
        (batch(4, 3), OUT_OF_ORDER, "one and a half below the window"),
        (batch(4, 4), OUT_OF_ORDER, "two as one below the window"),
        (batch(20, epoch=2), STALE, "older, next sequence"),
        (batch(18, 2, epoch=2), STALE, "older, the sequences of a stored batch"),
        (batch(0, epoch=0), STALE, "much older"),
        (batch(0, epoch=4), "new at 0", "newer, from 0"),
        (batch(0, 2, epoch=4), "new at 0", "newer, the sequences of a stored batch"),
        (batch(0, epoch=32767), "new at 0", "much newer, from 0"),
        (batch(20, epoch=4), OUT_OF_ORDER, "newer, next sequence of the old epoch"),
        (batch(1, epoch=4), OUT_OF_ORDER, "newer, from 1"),
        (batch(18, 2, epoch=4), OUT_OF_ORDER, "newer, a remembered range"),
    ),
    ROWS_DELETED: (
        (batch(18, 2), "stored at 118 to 119", "remembered, newest"),
        (batch(10, 2), "stored at 110 to 111", "remembered, oldest"),
        (batch(8, 2), OUT_OF_ORDER, "just below the remembered ones"),
        (batch(0, 2), OUT_OF_ORDER, "the first"),
        (batch(0, 10), OUT_OF_ORDER, "everything below as one"),
        (batch(9, 2), OUT_OF_ORDER, "into the window from below"),
        (batch(20), "new at 20", "the next"),
    ),
    **{
        past: tuple(
            (batch(0, count), OUT_OF_ORDER, f"{count} below the first batch were never stored")
            for count in (1, 4, 5)
        )
        for past in (ONE, Past(ONE.sent, deleted=1))
    },
    FEW: (
        (batch(4), "new at 4", "the next"),
        (batch(0, 2), "stored at 100 to 101", "the first again"),
        (batch(5), OUT_OF_ORDER, "a gap"),
        (batch(0, 4), OUT_OF_ORDER, "both as one"),
        (batch(TOP), OUT_OF_ORDER, "what can never have been stored"),
        (batch(TOP, 2), OUT_OF_ORDER, "across the beginning"),
    ),
    MARKER: (
        (batch(0), "new at 0", "from 0"),
        (batch(1), OUT_OF_ORDER, "from 1"),
        (batch(20), OUT_OF_ORDER, "from anywhere"),
        (batch(0, epoch=2), STALE, "the epoch that the marker fenced"),
        (batch(0, epoch=4), "new at 0", "a newer epoch from 0"),
        (batch(1, epoch=4), OUT_OF_ORDER, "a newer epoch from 1"),
    ),
    Past(_TWENTY, is_expired=True, has_marker=True): (
        (batch(0, 2), "stored at 100 to 101", "rows from before the marker are repeats"),
        (batch(0, 1), OUT_OF_ORDER, "a part of one is not"),
    ),
    NOTHING: tuple(
        (batch(sequence, 2, epoch=epoch), f"new at {sequence}", f"from {sequence} in epoch {epoch}")
        for sequence in (0, 1, 12345, 2**30, 2**30 + 1, TOP)
        for epoch in (0, 32767)
    ),
    EXPIRED: (
        (batch(20), "new at 20", "it goes on"),
        (batch(25), "new at 25", "it goes on after a gap"),
        (batch(18, 2), "stored at 118 to 119", "its last batch again"),
        (batch(10, 2), "stored at 110 to 111", "its oldest stored batch again"),
        (batch(18, 1), OUT_OF_ORDER, "a part of a stored batch"),
        (batch(19, 1), OUT_OF_ORDER, "the end of a stored batch"),
        (batch(19, 2), OUT_OF_ORDER, "a stored sequence and a new one"),
        (batch(16, 4), OUT_OF_ORDER, "two stored batches as one"),
        (batch(8, 4), OUT_OF_ORDER, "deleted sequences and stored ones"),
        (batch(8, 2), "new at 8", "deleted sequences only, as in Kafka"),
        (batch(0, epoch=4), "new at 0", "a newer epoch"),
        (batch(18, 2, epoch=4), "new at 18", "a newer epoch from anywhere"),
    ),
    Past((_WRAP,)): (
        (batch(0), f"new at {SECOND_ROUND}", "after the last comes 0"),
        (batch(1), OUT_OF_ORDER, "not 1"),
        (batch(TOP), OUT_OF_ORDER, "not the last again"),
        (batch(TOP - 1, 2), "stored at 100 to 101", "the last batch again"),
    ),
    BEFORE_THE_WRAP: ((batch(TOP - 1, 5), f"new at {TOP - 1}", "a batch across"),),
    ACROSS: (
        (batch(TOP - 1, 4), "stored at 100 to 103", "the batch across again"),
        (batch(TOP - 1, 2), OUT_OF_ORDER, "its part before"),
        (batch(0, 2), OUT_OF_ORDER, "its part after"),
        (batch(2), f"new at {SECOND_ROUND + 2}", "on after it"),
        (batch(3), OUT_OF_ORDER, "a gap after it"),
    ),
    AFTER: (
        (batch(TOP - 3, 2), "stored at 100 to 101", "from before the wrap, remembered"),
        (batch(0, 2), "stored at 104 to 105", "from after the wrap, remembered"),
        (batch(TOP, 2), OUT_OF_ORDER, "over two batches, across"),
    ),
    LATER: (
        (batch(TOP - 1, 2), "stored at 100 to 101", "from before the wrap, found as rows"),
        (batch(TOP, 2), OUT_OF_ORDER, "into the window from before"),
        (batch(10), f"new at {SECOND_ROUND + 10}", "the second round goes on"),
    ),
    Past(LATER.sent, deleted=1): ((batch(TOP - 1, 2), OUT_OF_ORDER, "from before, deleted"),),
    Past(SECOND.sent, deleted=1, is_expired=True): (
        (batch(10, 2), "stored at 112 to 113", "a repeat of the second round"),
        (batch(14), f"new at {SECOND_ROUND + 14}", "the second round goes on"),
    ),
}.items() for case in cases)  # fmt: skip
"""Each past with the batches that may come next."""
