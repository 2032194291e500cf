"""What a processor has finished beyond its offset outlives every move of the offset but one back."""

from __future__ import annotations

import pytest

from eosdb import OffsetAndMetadata
from eosdb.model.finished import Finished, read, settled, text

STANDING = OffsetAndMetadata(30, "eosdb:30 40 2 5")
ALL = OffsetAndMetadata(40, "eosdb:40")
FOREIGN = OffsetAndMetadata(30, "mine")

CASES = [
    # standing, offset and metadata given, metadata stored, what is finished then
    (STANDING, 30, "", STANDING.metadata, Finished(40, [30, 32, 37])),
    (STANDING, 30, STANDING.metadata, STANDING.metadata, Finished(40, [30, 32, 37])),
    (STANDING, 30, "mine", STANDING.metadata, Finished(40, [30, 32, 37])),
    (STANDING, 31, "", STANDING.metadata, Finished(40, [32, 37])),
    (STANDING, 31, STANDING.metadata, STANDING.metadata, Finished(40, [32, 37])),
    (STANDING, 38, "", STANDING.metadata, Finished(40, [])),
    (STANDING, 40, "", STANDING.metadata, Finished(40, [])),
    (STANDING, 50, "", STANDING.metadata, Finished(50, [])),
    (STANDING, 50, "mine", "mine", Finished(50)),
    (STANDING, 29, "", "eosdb:29", Finished(29)),
    (STANDING, 29, STANDING.metadata, STANDING.metadata, Finished(29)),
    (STANDING, 29, "mine", "mine", Finished(29)),
    (STANDING, -1, "", "eosdb:0", Finished(-1)),
    (STANDING._replace(offset=35), 32, "", "eosdb:32", Finished(32)),
    (ALL, 40, "", "eosdb:40", Finished(40)),
    (ALL, 40, "mine", "mine", Finished(40)),
    (ALL, 39, "", "eosdb:39", Finished(39)),
    (FOREIGN, 30, "", "", Finished(30)),
    (FOREIGN, 30, "eosdb:30 33", "eosdb:30 33", Finished(33, [30])),
    (FOREIGN, 30, "eosdb:30 33 x", "eosdb:30 33 x", Finished(30)),
    (FOREIGN, 30, f"eosdb:30 {'9' * 5_000}", f"eosdb:30 {'9' * 5_000}", Finished(30)),
]


@pytest.mark.parametrize(("standing", "offset", "given", "stored", "finished"), CASES)
def test_an_offset_at_or_past_the_standing_one_keeps_what_is_finished_and_one_before_it_nothing(
    standing: OffsetAndMetadata, offset: int, given: str, stored: str, finished: Finished
) -> None:
    after = settled(standing, OffsetAndMetadata(offset, given, 7))
    assert after == (offset, stored, 7)
    assert (read(after).end, list(read(after).unfinished)) == (finished.end, [*finished.unfinished])


def test_what_is_written_is_read() -> None:
    for end, unfinished in ((40, [30, 32, 37]), (40, []), (31, [30])):
        first = unfinished[0] if unfinished else end
        found = read(OffsetAndMetadata(first, text(end, unfinished)))
        assert (found.end, list(found.unfinished)) == (end, unfinished)
