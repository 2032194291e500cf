"""The screen of `eosdb top`, and its keys. Pure functions of a reading, the view, and the terminal's size.

Names come last in every line, because their width in a terminal is not certain.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from rich.text import Text

from eosdb.cli.output import cell
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, shortened, size

from .tables import TABLES, Reading, ScreenRow, ScreenTable, arranged, per_second, visible

T = TypeVar("T")
DELAY_MIN, DELAY_MAX = 0.1, 3600.0
_HEADER_LINES: Final = 5
_NAME_MAX: Final = 300
_SWITCHES: Final = ("\ufe0e", "\ufe0f")
"""Variation selectors; terminals disagree about the width of the character before them."""
_LEFT_TO_RIGHT: Final = "\u200e"
HELP: Final = """\
 q           quit                        space   refresh now
 1 2 3 4     one table in full           0 a     all tables
 Tab         the next table              s d     change the delay
 < >         sort by the column left or right of this one
 R           sort the other way round
 / Esc       show only names that contain a text; show all again
 ↑ ↓ PgUp PgDn Home End   scroll         h ?     this help

 BEHIND    offsets from the group's position to the log end
 ETA       time until the group has caught up, at its present rate
 LEFT      time until the transaction is aborted by itself
 LSO       partitions whose last stable offset it holds / partitions it is open in
 WAITING   committed records behind it, which wait until it ends
           (dead letters: those that have not been replayed)
 hangs     the transaction will not end by itself: see `eosdb transactions find-hanging`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the user has chosen to see."""

    delay_s: float = 2.0
    table: int | None = None
    """None: all of them."""
    sort: tuple[int, ...] = (0,) * len(TABLES)
    backwards: tuple[bool, ...] = (False,) * len(TABLES)
    top: int = 0
    """The number of the first row shown."""
    containing: str = ""
    typing: str = ""
    """`/` or `d` while its text is being typed."""
    typed: str = ""
    help: bool = False
    quit: bool = False
    refresh: bool = False
    note: str = ""

    @property
    def current(self) -> int:
        return 0 if self.table is None else self.table


def press(view: View, key: str, width: int, height: int) -> View:
    """Return the view after a key press."""
    view = replace(view, refresh=False, note="")
    if key == "resize":
        return view
    if view.typing:
        return _typing(view, key)
    if view.help:
        return replace(view, help=False, quit=key in ("q", "Q"))
    at = view.current
    match key:
        case "q" | "Q":
            return replace(view, quit=True)
        case "h" | "?":
            return replace(view, help=True)
        case " " | "enter":
            return replace(view, refresh=True)
        case "s" | "d":
            return replace(view, typing="d", typed="")
        case "/":
            return replace(view, typing="/", typed=view.containing)
        case "escape":
            return replace(view, containing="", top=0)
        case "0" | "a":
            return replace(view, table=None, top=0)
        case "1" | "2" | "3" | "4":
            return replace(view, table=int(key) - 1, top=0)
        case "tab":
            following = 0 if view.table is None else view.table + 1
            return replace(view, table=following if following < len(TABLES) else None, top=0)
        case "backtab":
            before = len(TABLES) - 1 if view.table is None else view.table - 1
            return replace(view, table=before if before >= 0 else None, top=0)
        case "<" | ">":
            columns = visible(TABLES[at], width)
            beyond = [
                i for i in columns if (i > view.sort[at] if key == ">" else i < view.sort[at])
            ]
            chosen = (beyond[0] if key == ">" else beyond[-1]) if beyond else view.sort[at]
            return replace(view, sort=_with(view.sort, at, chosen), top=0)
        case "R":
            turned = _with(view.backwards, at, not view.backwards[at])
            return replace(view, backwards=turned, top=0)
        case "up" | "down" | "pageup" | "pagedown" | "home" | "end":
            page = max(height - _HEADER_LINES - 1, 1)
            moves = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -(10**9)}
            return replace(view, top=max(view.top + moves.get(key, 10**9), 0))
    return view


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _typing(view: View, key: str) -> View:
    done = replace(view, typing="", typed="")
    if key == "escape":
        return done
    if key == "backspace":
        return replace(view, typed=view.typed[:-1])
    if key != "enter":
        more = key if len(key) == 1 and key.isprintable() else ""
        return replace(view, typed=view.typed + more)
    if view.typing == "/":
        return replace(done, containing=view.typed, top=0)
    try:
        delay = float(view.typed)
    except ValueError:
        return replace(done, note=f"got {view.typed!r}, expected seconds such as 0.5")
    if not DELAY_MIN <= delay <= DELAY_MAX:
        return replace(done, note=f"expected {DELAY_MIN} to {DELAY_MAX:.0f} seconds")
    return replace(done, delay_s=delay, refresh=True)


def frame(
    reading: Reading | None, note: str, view: View, width: int, height: int
) -> tuple[list[Text], View]:
    """Return the lines of a screen, and the view, whose scroll position is limited to the table."""
    lines = _header(reading, view) if reading else [Text("eosdb top", style="bold")]
    lines.append(_message(reading, note, view, width))
    if view.help:
        lines += [Text(line) for line in HELP.splitlines()]
    elif reading is not None:
        shown = range(len(TABLES)) if view.table is None else [view.table]
        tables = {
            at: arranged(
                TABLES[at].rows(reading),
                view.sort[at],
                backwards=view.backwards[at],
                containing=view.containing,
            )
            for at in shown
        }
        room = height - len(lines) - len(tables)
        shares = _shares([len(rows) for rows in tables.values()], room)
        tops = dict.fromkeys(tables, 0)
        at = view.current
        if at in tables:
            share = shares[list(tables).index(at)]
            view = replace(view, top=min(view.top, max(len(tables[at]) - share, 0)))
            tops[at] = view.top
        for (at, rows), share in zip(tables.items(), shares, strict=True):
            lines += _table(at, rows, tops[at], share, view, width)
    lines = lines[: max(height, 1)]
    for line in lines:
        line.no_wrap = True
    return lines, view


def batch(reading: Reading, note: str, view: View) -> str:
    """Return all rows of the tables as plain text, for files and pipes."""
    lines, _ = frame(reading, note, view, 0, 10**9)
    return "\n".join(line.plain.rstrip() for line in lines) + "\n"


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divide `room` rows among the tables: equally, except that no table gets more than it needs."""
    shares = [0] * len(wanted)
    left = max(room, 0)
    by_want = sorted(range(len(wanted)), key=wanted.__getitem__)
    for done, i in enumerate(by_want):
        shares[i] = min(wanted[i], left // (len(wanted) - done))
        left -= shares[i]
    return shares


def _header(reading: Reading, view: View) -> list[Text]:
    it, rates = reading.overview, reading.rates
    topics = len({partition.topic for partition in it.partitions})
    behind = sum(1 for group in it.groups if group.behind)
    held, transactions = (
        len({(one.producer_id, one.producer_epoch) for one in some})
        for some in (it.holders(), it.transactions)
    )
    waiting = sum(reading.waiting.values())
    letters = sum(topic.waiting for topic in it.dead_letters)
    scheduled = sum(topic.waiting for topic in it.scheduled)
    overdue = sum(topic.overdue for topic in it.scheduled)
    free = f" ({size(it.free_bytes)} free)" if it.free_bytes else ""
    growth = "–" if rates is None else f"{size(rates.file_bytes)}/s"
    records = None if rates is None else sum(rates.offsets.values())
    wal = f", held by {name(it.wal_held_by)}" if it.wal_held_by else ""
    first = Text.assemble(
        ("eosdb top", "bold"), f"  {format_time_ms(it.now_ms)}, every {view.delay_s:g} s  ",
        (name(it.path), "bold"),
    )  # fmt: skip
    second = Text.assemble(
        "file ", (size(it.size_bytes), "bold"), free, "  growth ", (growth, "bold"),
        "  WAL ", (size(it.wal_bytes), "bold"), (wal, "yellow"),
    )  # fmt: skip
    third = Text.assemble(
        (per_second(None if rates is None else rates.events), "bold"), " events/s  ",
        (per_second(records), "bold"), " offsets/s  ",
        f"journal at {it.journal_position:,}  {counted(topics, 'topic')}, "
        f"{counted(len(it.partitions), 'partition')}",
        *((", ", _alarm(f"{scheduled:,} scheduled", overdue)) if scheduled else ()),
    )  # fmt: skip
    fourth = Text.assemble(
        f"{counted(len(it.groups), 'group')}, ", _alarm(f"{behind:,} behind", behind),
        f"  {counted(transactions, 'open transaction')}, ", _alarm(f"{held:,} at the LSO", waiting),
        *((" (", _alarm(f"{counted(waiting, 'record')} held", waiting), ")") if waiting else ()),
        "  ", _alarm(counted(letters, "dead letter"), letters),
    )  # fmt: skip
    return [first, second, third, fourth]


def _alarm(text: str, number: int) -> tuple[str, str]:
    return text, "yellow" if number else ""


def _message(reading: Reading | None, note: str, view: View, width: int) -> Text:
    if view.typing:
        prompt = "show names that contain: " if view.typing == "/" else "delay in seconds: "
        return Text.assemble((prompt, "bold"), name(view.typed), ("█", "blink"))
    if view.note or note:
        return Text(name(view.note or note), style="bold red")
    if view.containing:
        return Text(f"names that contain {name(view.containing)} (Esc: all)", style="bold")
    urgent = [one for one in reading.worries if one.is_urgent] if reading else []
    sentence = f"{name(urgent[0].sentence)}" if urgent else ""
    keys = "h help  q quit  " if width else ""
    return Text.assemble((keys, "dim"), (sentence, "yellow"))


def _table(
    at: int, rows: Sequence[ScreenRow], top: int, share: int, view: View, width: int
) -> list[Text]:
    table = TABLES[at]
    shown = rows[top : top + share]
    return [_heading(at, table, len(rows), top, len(shown), view, width)] + [
        _line(table, row, width) for row in shown
    ]


def _heading(
    at: int, table: ScreenTable, total: int, top: int, shown: int, view: View, width: int
) -> Text:
    line = Text(style="reverse" if width else "")
    for i in visible(table, width):
        title, room, is_text, _ = table.columns[i]
        text = title if is_text or not room else title.rjust(room)
        arrow = ("▲" if view.backwards[at] else "▼") if i == view.sort[at] else ""
        style = "bold underline" if i == view.sort[at] else ""
        if room:
            line.append(text.ljust(room), style)
            line.append(arrow or " ")
            line.append(" ")
        else:
            part = "" if shown == total else f" {top + 1:,}–{top + shown:,} of" if shown else " of"
            number = f"{total:,}" if total else "none"
            line.append(text, style)
            line.append(f"{arrow} [{at + 1}]{part} {number}")
    line.append(" " * max(width - line.cell_len, 0))
    return line


def _line(table: ScreenTable, row: ScreenRow, width: int) -> Text:
    line = Text(style=row.style)
    for i in visible(table, width)[:-1]:
        room = table.columns[i].room
        shown = shortened(cell(row.cells[i][0]), room)
        line.append(shown.ljust(room) if table.columns[i].is_text else shown.rjust(room))
        line.append("  ")
    line.append(name(row.cells[-1][0]))
    return line


def name(text: str) -> str:
    """Make a name safe to print: without control characters, and without reversing the text after it."""
    shown = cell(text[:_NAME_MAX])
    for switch in _SWITCHES:
        shown = shown.replace(switch, "")
    turns = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in shown)
    return f"{shown}{_LEFT_TO_RIGHT}" if turns else shown
