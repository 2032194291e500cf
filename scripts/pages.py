"""What a page of the documentation shows, as programs that can be run."""

from __future__ import annotations

import re


def section(page: str, heading: str) -> str:
    """The part of a page below a heading of the second level, for example `## Five minutes`."""
    found = re.search(rf"(?ms)^## {re.escape(heading)}\b.*?(?=^## |\Z)", page)
    if found is None:
        raise LookupError(f"the page has no section {heading!r}")
    return found[0]


def python_of(page: str) -> str:
    """The blocks marked `python`, as one program; empty if there are none."""
    return "\n".join(re.findall(r"(?s)```python\n(.*?)```", page))


def commands_of(page: str) -> str:
    """The lines after `$` of the blocks marked `console`, as one shell script; empty if there are none."""
    blocks = re.findall(r"(?s)```console\n(.*?)```", page)
    return "\n".join(
        line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")
    )
