"""The one printer: listings as table, JSON or CSV, and how values of records are shown.

A terminal gets a rich table; a pipe gets aligned text without decoration. JSON is one array.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "json", "csv")
_TABLE_SAMPLE = 1_000
"""Rows whose widths decide the columns of a plain table; later rows may stick out."""


def format_option(function: F) -> F:
    """`--format table|json|csv`, the same for every listing."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print the rows; json is one array.",
    )(function)


def rows(columns: Sequence[str], data: Iterable[Sequence[object]], output_format: str) -> None:
    """Print rows as they come."""
    if output_format == "json":
        _json(columns, data)
    elif output_format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in data:
            writer.writerow(["" if value is None else shown(value) for value in row])
    elif sys.stdout.isatty():
        _rich(columns, data)
    else:
        _plain(columns, data)


def shown(value: object) -> str:
    """A value as text: bytes that are UTF-8 as such, others as SQL's X'…'."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"X'{value.hex()}'"
    return "" if value is None else str(value)


def _json(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    opening = "["
    for row in data:
        item = dict(zip(columns, map(_json_value, row), strict=True))
        click.echo(f"{opening}\n  {json.dumps(item, ensure_ascii=False)}", nl=False)
        opening = ","
    click.echo("[]" if opening == "[" else "\n]")


def _json_value(value: object) -> object:
    return shown(value) if isinstance(value, bytes) else value


def _plain(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    texts = ([shown(value) for value in row] for row in data)
    sample = list(islice(texts, _TABLE_SAMPLE))
    widths = [max(map(len, cells)) for cells in zip(columns, *sample, strict=True)]
    for row in chain([list(columns)], sample, texts):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _rich(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in data:
        table.add_row(*(Text(shown(value)) for value in row))
    Console().print(table)


def facts(items: dict[str, object], output_format: str) -> None:
    """Print names and values, one a line; as JSON one object in an array, like any listing."""
    if output_format == "table":
        rows(("FACT", "VALUE"), items.items(), output_format)
    else:
        rows(tuple(items), [tuple(items.values())], output_format)
