"""Renamed options. The old spelling works for one version, and prints the new one to stderr."""

from __future__ import annotations

from typing import Final

from . import output

OLD_SPELLINGS: Final = {
    "datasette-metadata": {"--out": "--output"},
    "dlq replay": {"--to": "--to-topic"},
    "log dump": {"--offset": "--from-offset"},
    "migrate-to-kafka": {"--config": "--command-config"},
    "relay": {
        "--config": "--command-config",
        "--max-bytes": "--transaction-bytes",
        "--max-records": "--transaction-size",
    },
    "timeline": {"--from": "--from-offset", "--out": "--output", "--to": "--before-offset"},
}
"""Command, old spelling of an option, and the spelling to use."""


def current_spelling(command: str, args: list[str]) -> list[str]:
    """Replace old spellings of options in the arguments of a command."""
    renamed = OLD_SPELLINGS.get(command, {})
    end = args.index("--") if "--" in args else len(args)
    spelled = []
    for word in args[:end]:
        name, equals, value = word.partition("=")
        if name in renamed:
            say_instead(name, renamed[name])
        spelled.append(renamed.get(name, name) + equals + value)
    return spelled + args[end:]


def say_instead(old: str, new: str) -> None:
    """Print the spelling to use to stderr."""
    output.line(f"{old} is {new} now; the old spelling ends with the next version", err=True)
