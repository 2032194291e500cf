"""The picture as a document: SVG with labelled bars, and a page with the picture and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from eosdb.cli.output import cell
from eosdb.model.clock import format_time_ms

from . import timeline_picture
from .timeline_lane import COLOURS, bar_id, summary

if TYPE_CHECKING:
    from eosdb.model.timeline.timeline import PartitionTimeline, TransactionSpan

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #111827; margin: 1.5rem; }
svg { width: 100%; height: auto; max-width: 1500px; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #E5E7EB; }
td.name { max-width: 40rem; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
.outcome::before { content: ""; display: inline-block; width: .7em; height: .7em; margin-right: .4em; }
"""


def svg(lanes: Sequence[PartitionTimeline]) -> bytes:
    """The picture; viewers that support it show a bar's description on hover."""
    drawn = timeline_picture.svg(lanes)
    for lane in lanes:
        for span in lane.transactions or lane.longest:
            opening = f'<g id="{bar_id(lane, span)}">'
            drawn = drawn.replace(opening, f"{opening}<title>{escape(_described(span))}</title>", 1)
    return drawn.encode()


def _described(span: TransactionSpan) -> str:
    end, ended = "the log end", ""
    if span.marker_offset >= 0:
        end, ended = f"{span.marker_offset:,}", f" to {_moment(span.marker_ms)}"
    return (
        f"{cell(_name(span))}: {span.outcome}, {span.records:,} records, "
        f"offsets {span.first_offset:,} to {end}, {_moment(span.first_ms)}{ended}, "
        f"producer id {span.producer_id}"
    )


def _moment(time_ms: int) -> str:
    return format_time_ms(time_ms, "milliseconds")


def _name(span: TransactionSpan) -> str:
    return "(unknown)" if span.transactional_id is None else span.transactional_id


def html(lanes: Sequence[PartitionTimeline]) -> bytes:
    """One self-contained page: the picture, its transactions, its groups."""
    picture = svg(lanes).decode()
    title = escape(f"Timeline of {cell(lanes[0].topic)}")
    colours = "".join(
        f".{name}::before {{ background: {colour}; }}\n" for name, colour in COLOURS.items()
    )
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        f"<style>{_STYLE}{colours}</style>\n</head>\n<body>",
        picture[picture.index("<svg") :],
        *_transactions(lanes),
        *_groups(lanes),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts).encode()


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
                _text(_moment(span.first_ms)),
                _text(_moment(span.marker_ms) if span.marker_offset >= 0 else "–"),
                _number(span.records),
                f'<td><span class="outcome {span.outcome}">{span.outcome}</span></td>',
                _text(_name(span)),
                _number(span.producer_id),
            )
            for lane in lanes
            for span in lane.transactions or lane.longest
        ),
    )  # fmt: skip


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
    return f'<td class="name">{escape(cell(value))}</td>'
