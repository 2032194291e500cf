"""Text for people: printable forms of names, ids, keys and messages; amounts, sizes and durations; and the
command that installs an extra."""

from __future__ import annotations

from typing import Any, Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS: Final = (("d", "d", 86_400), ("h", "h", 3_600), ("min", "m", 60), ("s", "s", 1))


def printable(text: str, keep: str = "") -> str:
    """Escape unprintable characters except those of `keep`: line breaks, terminal controls, marks of text
    direction, surrogates. So different texts look different."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """Shorten text to `most` characters by leaving out the middle: names in a series differ at the end."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return text[: most - 1 - tail] + "…" + (text[-tail:] if tail else "")


def decoded(data: bytes) -> str:
    """Decode bytes if they are UTF-8; otherwise return them as the SQL literal `X'…'`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"X'{data.hex()}'"


def number(count: float | None) -> str:
    """Format a number as in `1,234`; below 10 with one decimal unless it is whole; `–` for None."""
    if count is None:
        return "–"
    return f"{count:.1f}" if abs(count) < 10 and count != int(count) else f"{count:,.0f}"


def counted(count: int, noun: str) -> str:
    """Format an amount with its noun: `1 record`, `1,234 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Bytes in binary units: `512 B`, `17.5 MiB`, `300 MiB`."""
    sign, count = ("-" if count < 0 else ""), abs(count)
    for unit in _BINARY:
        if round(count) < 1024 or unit == _BINARY[-1]:
            break
        count /= 1024
    digits = 0 if unit == "B" or round(count, 1) >= 100 else 1
    return f"{sign}{count:.{digits}f} {unit}"


def duration(ms: float, *, short: bool = False) -> str:
    """Format a duration in its two largest units, rounded down: `350 ms`, `2.5 s`, `12 s`, `2 h 5 min`.
    `short` takes at most seven characters: `0.4s`, `12s`, `2h05m`, `400d`."""
    whole = max(int(ms), 0)
    if short and whole < 10_000:
        return f"{whole // 100 / 10:.1f}s"
    if 0 < whole < 1_000:
        return f"{whole} ms"
    if whole < 10_000:
        return f"{whole // 100 / 10:g} s"
    left = whole // 1000
    place = next(i for i, step in enumerate(_STEPS) if left >= step[2])
    name, letter, seconds = _STEPS[place]
    count, left = divmod(left, seconds)
    parts = [(left // step[2], step) for step in _STEPS[place + 1 : place + 2]]
    if short:
        return f"{count}{letter}" + "".join(f"{n:02}{step[1]}" for n, step in parts if count < 100)
    return f"{count:,} {name}" + "".join(f" {n} {step[0]}" for n, step in parts if n)


def module_for(method: str, name: str, refused: type[Exception]) -> Any:
    """Import the package that a method needs. Raises `refused` if it is not installed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise refused(
            f"{method}() needs {name}, which is not installed ({error}); pip install {name}"
        ) from None


def needs_extra(what: str, extra: str, error: ImportError) -> str:
    """Return an error text: `what` needs the extra, with a command that installs it from the same source as
    this eosdb."""
    return f"{what} needs the extra {extra!r}: {_installs(extra)} ({error})"


def _installs(extra: str) -> str:
    import os
    import shlex
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    from eosdb.model.damage import parsed

    in_a_checkout = f"pip install '.[{extra}]' in a checkout of eosdb"
    try:
        # This file exists if pip installed eosdb from a folder or a URL (PEP 610).
        text = metadata.distribution("eosdb").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return in_a_checkout
    if text is None:
        return f"pip install 'eosdb[{extra}]'"
    source = parsed(text)
    url = source["url"]
    if (parts := urlsplit(url)).scheme != "file":
        if vcs := source.get("vcs_info"):
            url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        return "pip install " + shlex.quote(f"eosdb[{extra}] @ {url}")
    path = unquote(parts.path)
    if not os.path.exists(path):
        return in_a_checkout
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}" + shlex.quote(f"{path}[{extra}]")
