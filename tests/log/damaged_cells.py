"""Copies of a file, each with one cell of one page of an index damaged.

Index pages are those of indexes and of tables without rowids. A cell is damaged as it may be by a bit that
flips or a write that goes astray: it leads to another row, stands in another's place, has another key, or
leads to another page.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

INTERIOR: Final = 2
LEAF: Final = 10
PAGE: Final = 4096


class Damage(NamedTuple):
    what: str
    data: bytes


class _Cell(NamedTuple):
    """Where one lies in the file, and where the page says so."""

    pointer: int
    at: int


def damages(path: Path, names: Sequence[str], count: int) -> Iterator[Damage]:
    """So many of all damages of each of these indexes, evenly chosen."""
    connection = sqlite3.connect(path)
    roots = dict(connection.execute("SELECT name, rootpage - 1 FROM sqlite_master"))
    connection.close()
    whole = path.read_bytes()
    pages = {name: list(_pages(whole, roots[name])) for name in names}
    leaves = [page for found in pages.values() for page in found if whole[page * PAGE] == LEAF]
    for name, found in pages.items():
        possible = [
            (f"{name}, page {page + 1}, {what}", at, new)
            for page in found
            for what, at, new in _of_page(whole, page, leaves)
        ]
        for what, at, new in possible[:: max(1, len(possible) // count)]:
            yield Damage(what, whole[:at] + new + whole[at + len(new) :])


def _pages(whole: bytes, page: int) -> Iterator[int]:
    yield page
    if whole[page * PAGE] == INTERIOR:
        for cell in _cells(whole, page):
            yield from _pages(whole, _number(whole, cell.at) - 1)
        yield from _pages(whole, _number(whole, page * PAGE + 8) - 1)


def _number(whole: bytes, at: int) -> int:
    return int.from_bytes(whole[at : at + 4], "big")


def _of_page(whole: bytes, page: int, leaves: Sequence[int]) -> Iterator[tuple[str, int, bytes]]:
    """What is damaged, where in the file, and what stands there then."""
    cells = list(_cells(whole, page))
    for place, cell in enumerate(cells):
        who = f"cell {place}"
        other = cells[(place + len(cells) // 3 + 1) % len(cells)]
        yield f"{who} is another", cell.pointer, whole[other.pointer : other.pointer + 2]
        begin = cell.at
        if whole[page * PAGE] == INTERIOR:
            begin += 4
            for leaf in leaves:
                yield f"{who} leads to page {leaf + 1}", cell.at, (leaf + 1).to_bytes(4, "big")
        for at in range(begin, begin + 1 + whole[begin]):
            for bit in (1, 64):
                yield f"{who}, byte {at - cell.at}", at, bytes([whole[at] ^ bit])


def _cells(whole: bytes, page: int) -> Iterator[_Cell]:
    begin = page * PAGE
    header = 12 if whole[begin] == INTERIOR else 8
    (count,) = struct.unpack_from(">H", whole, begin + 3)
    for place in range(count):
        pointer = begin + header + 2 * place
        (at,) = struct.unpack_from(">H", whole, pointer)
        yield _Cell(pointer, begin + at)
