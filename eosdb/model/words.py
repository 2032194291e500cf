"""Text for people that others have chosen: names, ids, keys, messages."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text as a part of one line: what does not print is escaped – line breaks, what steers a terminal,
    marks that turn the direction – so that nothing looks like something else."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
