"""The picture of a partition's transactions on the page, with links from bars and columns, and the windows
that its form and its links lead to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from eosdb.database import Database
from eosdb.model.clock import format_time_ms
from eosdb.model.timeline import svg
from eosdb.model.timeline.timeline import PartitionTimeline, TransactionSpan

COLUMNS: Final = 290
BARS: Final = 150


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture, ready for the template."""

    timeline: PartitionTimeline
    svg: Markup
    caption: str

    @property
    def is_part(self) -> bool:
        """Whether some of the log lies outside of the window."""
        it = self.timeline
        return (it.start, it.end) != (it.offsets.log_start_offset, it.offsets.log_end_offset)

    @property
    def window(self) -> tuple[str, str]:
        """The ends of the axis as the form shows and takes them: offsets, or times."""
        return self._worded(*self.timeline.axis)

    @property
    def halves(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The windows to the left and to the right of this one."""
        low, high = self.timeline.axis
        width = max(high - low, 1)
        return self._worded(max(low - width, 0), low), self._worded(high, high + width)

    def _worded(self, low: int, high: int) -> tuple[str, str]:
        if self.timeline.by == "offset":
            return str(low), str(high)
        return format_time_ms(low, "milliseconds"), format_time_ms(high, "milliseconds")


def draw(
    db: Database, topic: str, partition: int, start: int | None, end: int | None, by: str = "offset"
) -> Drawn:
    """Draw a partition. `start` and `end` are offsets, or by="time" times (epoch ms); None: the whole log.

    Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError.
    """
    window = {"start": start, "end": end} if by == "offset" else {"since": start, "until": end}
    (timeline,) = db.admin.timeline(
        topic, partition, by=by, **window, max_transactions=BARS, max_bins=COLUMNS
    )
    here = f"/topics/{quote(topic, safe='')}/timeline?by={by}&partition={partition}"

    def transaction(span: TransactionSpan) -> str:
        if span.transactional_id:
            # A damaged name may hold characters that no address can carry.
            return f"/transaction?id={quote(span.transactional_id, safe='', errors='replace')}"
        first, last = timeline.extent(span)
        return f"{here}&from={first}&to={last + 1}"

    links = svg.Links(transaction, lambda low, high: f"{here}&from={low}&to={high}")
    # Everything in it is escaped where it is written.
    picture = Markup(svg.embedded(timeline, links))
    return Drawn(timeline, picture, svg.caption(timeline))
