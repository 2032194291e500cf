"""The picture of a topic as a page with tables of its transactions and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from eosdb.model.clock import format_time_ms
from eosdb.model.timeline import svg
from eosdb.model.timeline.lanes import summary
from eosdb.model.timeline.timeline import PartitionTimeline
from eosdb.model.words import printable

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #111827; margin: 1.5rem; }
svg { width: 100%; height: auto; max-width: 1500px; }
svg.sample { width: .7em; height: .7em; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #E5E7EB; }
td.name { max-width: 40rem; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
"""


def html(lanes: Sequence[PartitionTimeline]) -> str:
    """One self-contained page."""
    title = escape(f"Timeline of {printable(lanes[0].topic)}")
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        f"<style>{_STYLE}</style>\n</head>\n<body>",
        svg.document(lanes),
        *_transactions(lanes),
        *_groups(lanes),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _transactions(lanes: Sequence[PartitionTimeline]) -> Iterator[str]:
    yield "<h2>Transactions</h2>"
    for lane in lanes:
        if lane.aggregated:
            yield (
                f"<p>Partition {lane.partition}: {escape(summary(lane))}; too many to "
                "list, so these are the long and the open ones. A smaller window (--from, --to, --since, "
                "--until) lists all.</p>"
            )
    yield from _table(
        ("Partition", "#First offset", "#Marker offset", "First appended", "Marker appended", "#Records",
         "Outcome", "Transactional id", "#Producer id"),
        (
            (
                _number(lane.partition),
                _number(span.first_offset),
                _number(span.marker_offset) if span.marker_offset >= 0 else _number(None),
                _text(format_time_ms(span.first_ms, "milliseconds")),
                _text(
                    format_time_ms(span.marker_ms, "milliseconds")
                    if span.marker_offset >= 0
                    else "–"
                ),
                _number(span.records),
                _outcome(span.outcome),
                _text("(unknown)" if span.transactional_id is None else span.transactional_id),
                _number(span.producer_id),
            )
            for lane in lanes
            for span in lane.transactions or lane.longest
        ),
    )  # fmt: skip


def _outcome(outcome: str) -> str:
    sample = f'<rect class="{outcome}" width="99" height="99"/>'
    return f'<td><svg class="timeline sample">{sample}</svg> {outcome}</td>'


def _groups(lanes: Sequence[PartitionTimeline]) -> Iterator[str]:
    if not any(lane.groups for lane in lanes):
        return
    yield "<h2>Consumer groups</h2>"
    yield from _table(
        ("Partition", "#Committed offset", "#Behind the log end", "Group"),
        (
            (
                _number(lane.partition),
                _number(group.offset),
                _number(max(lane.offsets.log_end_offset - group.offset, 0)),
                _text(group.group_id),
            )
            for lane in lanes
            for group in lane.groups
        ),
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of cells; a column with # holds numbers."""
    yield (
        "<table>\n<tr>"
        + "".join(
            f'<th class="number">{name[1:]}</th>' if name[0] == "#" else f"<th>{name}</th>"
            for name in columns
        )
        + "</tr>"
    )
    for row in rows:
        yield f"<tr>{''.join(row)}</tr>"
    yield "</table>"


def _number(value: int | None) -> str:
    return f'<td class="number">{"–" if value is None else f"{value:,}"}</td>'


def _text(value: str) -> str:
    return f'<td class="name">{escape(printable(value))}</td>'
