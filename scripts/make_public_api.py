"""Writes tests/entrance/public_api.txt: everything that docs/compatibility.md promises a name for.

    python -m scripts.make_public_api

A name, a parameter, a default, a type, an error's code, a command's option, a view's column, a notice or a
version of the wire that comes, goes or changes is a line of that file, which a test compares and a review
sees. What is public in Python is what the reference (docs/reference) shows. `EXPERIMENTAL` names the parts
that may still change in a minor version; everything else is stable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from importlib import import_module
from textwrap import wrap
from typing import Any, Final

import click
from griffe import Class, Function, GriffeLoader, Parameter, ParameterKind, load_extensions

import eosdb
from eosdb.cli.main import main
from eosdb.model.notices.catalog import CATALOG
from eosdb.wire.handlers import APIS
from scripts.commands import leaves
from tests.tidy.tree import ROOT

FILE: Final = ROOT / "tests/entrance/public_api.txt"
WIDTH: Final = 108
_ENTRY: Final = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)
_FILTERS: Final = re.compile(r"filters: \[(.*)\]")
_QUOTED: Final = re.compile(r'"!([^"]*)"')
_LITERAL: Final = re.compile(r"-?\d+|'[^']*'|\(.*\)")
EXPERIMENTAL: Final = re.compile(
    r"(class )?eosdb\.(integrations\.(relay|moving|publishing|lakehouse|ui)\b|PublishReport\b"
    r"|ConsumerGroup(Description|Heartbeat|MemberDescription)\b|AssignedTopic\b)"
    r"|  (publish_copy|consumer_group_heartbeat|describe_consumer_group)\("
    r"|eosdb (relay|migrate-to-kafka|publish|fetch|export|ui)( |$)"
)
"""Relay, moving to Kafka, publishing, lakehouse, the page, and groups of KIP-848 in the library. A method
of a stable class is listed below its class's name."""
STABLE: Final = "stable"
UNTIL: Final = "experimental until 1.1"
_INDENTED: Final[Any] = {"initial_indent": "  ", "subsequent_indent": "    "}
_FILE: Final = ("  FILE file",)
_LISTING: Final = ("  --format [table|json|jsonl|csv] = table", "  -o --output file")
_STARS: Final = {ParameterKind.var_positional: "*", ParameterKind.var_keyword: "**"}


def document() -> str:
    stable, experimental = parted(python())
    commands_stable, commands_experimental = parted(commands())
    parts = {
        f"Python, {STABLE}": stable,
        f"Python, {UNTIL}": experimental,
        "errors": errors(),
        f"commands, {STABLE}": commands_stable,
        f"commands, {UNTIL}": commands_experimental,
        "views": views(),
        "notices": notices(),
        "metrics": metrics(),
        "wire": (f"{api.name} {api.lowest}-{api.highest}" for api in APIS.values()),
    }
    return "\n".join(
        f"# {title}\n\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts.items()
    )


def parted(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The lines of stable entries, and those of experimental ones."""
    stable: list[str] = []
    experimental: list[str] = []
    found, head, is_whole = stable, "", False
    for line in lines:
        if not line.startswith(" "):
            head, is_whole = line, EXPERIMENTAL.match(line) is not None
            found = experimental if is_whole else stable
        elif not is_whole and re.match("  [a-z]", line):  # A method or field of a class.
            found = experimental if EXPERIMENTAL.match(line) else stable
            if found is experimental and head not in experimental:
                experimental.append(head)
        found.append(line)
    return stable, experimental


def python() -> Iterator[str]:
    """Every name of the reference, with what it shows of each; errors have a part of their own."""
    extension = f"{ROOT / 'scripts/site_api.py'}:Reference"
    loader = GriffeLoader(extensions=load_extensions(extension), search_paths=[str(ROOT)])
    package: Any = loader.load("eosdb")
    for name, options in sorted(shown().items()):
        named: Any = package[name.removeprefix("eosdb.")]
        found = named.final_target if named.is_alias else named
        if found.is_function:
            yield from functions(name, found)
        elif found.is_attribute:
            yield f"{name} = {found.value}"
        elif found.is_class and not _is_error(name):
            yield from members(name, found, options)


def shown() -> dict[str, str]:
    """The names of the reference, each with its options for the site."""
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md")]
    return {name: options for text in texts for name, options in _ENTRY.findall(text)}


def _is_error(name: str) -> bool:
    module, _, last = name.rpartition(".")
    made = getattr(import_module(module), last)
    return isinstance(made, type) and issubclass(made, eosdb.EosdbError)


def members(name: str, cls: Class, options: str) -> Iterator[str]:
    bases = [
        str(base)
        for base in cls.bases
        if not str(getattr(base, "canonical_path", base)).startswith("eosdb.")
    ]
    yield f"class {name}({', '.join(bases)})"
    filters = _FILTERS.search(options)
    hidden = re.compile("|".join(_QUOTED.findall(filters[1])) if filters else "^_")
    names = {each for each in cls.all_members if not hidden.search(each)}
    if name.endswith(".AsyncAdmin"):
        yield from wrap(
            f"methods of Admin, awaited: {', '.join(sorted(names))}", WIDTH, **_INDENTED
        )
        return
    if "merge_init_into_class: false" not in options and "__init__" in cls.all_members:
        names.add("__init__")
        names -= {each.name for each in cls.parameters}
    if names == {"__init__"}:
        first, *fields = functions("__init__", cls.all_members["__init__"])  # type: ignore[arg-type]
        yield from (f"  {line}" for line in fields or [first])
        return
    for each in sorted(names):
        member: Any = cls.all_members[each]
        found = member.final_target if member.is_alias else member
        if found.is_function:
            yield from (f"  {line}" for line in functions(each, found))
        elif found.is_attribute:
            annotation = str(found.annotation or "").replace("Final", "")
            value = f" = {found.value}" if _LITERAL.fullmatch(str(found.value)) else ""
            yield f"  {each}{f': {annotation}' if annotation else ''}{value}"


def functions(name: str, function: Function) -> Iterator[str]:
    """The overloads of a function, or the function itself; a long one has a line for each parameter."""
    for each in function.overloads or [function]:
        returns = f" -> {each.returns}" if each.returns is not None else ""
        parameters = [*_parameters(each.parameters)]
        line = f"{name}({', '.join(parameters)}){returns}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield from (f"{name}(…){returns}", *(f"    {each}" for each in parameters))


def _parameters(parameters: Any) -> Iterator[str]:
    is_keyword_only = False
    for each in parameters:
        if each.name not in ("self", "cls"):
            if each.kind is ParameterKind.keyword_only and not is_keyword_only:
                yield "*"
            is_keyword_only = each.kind in (
                ParameterKind.keyword_only,
                ParameterKind.var_positional,
            )
            yield _parameter(each)


def _parameter(parameter: Parameter) -> str:
    stars = "" if parameter.kind is None else _STARS.get(parameter.kind, "")
    annotation = "" if parameter.annotation is None else f": {parameter.annotation}"
    is_given = parameter.default is not None and not stars
    slash = "/" if parameter.kind is ParameterKind.positional_only else ""
    return (
        f"{stars}{parameter.name}{slash}{annotation}{f' = {parameter.default}' if is_given else ''}"
    )


def errors() -> Iterator[str]:
    for name in sorted(eosdb.errors.__all__):
        error = getattr(eosdb.errors, name)
        if isinstance(error, type) and issubclass(error, eosdb.EosdbError):
            line = f"{name}({error.__mro__[1].__name__})"
            if issubclass(error, eosdb.ApiError):
                line += f" {error.code} {error.name}{' retriable' if error.retriable else ''}"
            yield f"{line}, {error.outcome}"


def commands() -> Iterator[str]:
    context = main.make_context("eosdb", [], resilient_parsing=True)
    yield "FILE may be named by --db FILE instead, before or behind the command; (listing) is"
    yield from _LISTING
    for command, below in leaves(main, context):
        parameters = [
            each for each in command.get_params(below) if not getattr(each, "hidden", False)
        ]
        options = [f"  {_option(each)}" for each in parameters]
        has_file, is_listing = ({*common} <= {*options} for common in (_FILE, _LISTING))
        common = (*_FILE * has_file, *_LISTING * is_listing, "  -h --help flag")
        yield f"{below.command_path}{' FILE' * has_file}{' (listing)' * is_listing}"
        yield from (option for option in options if option not in common)


def _option(parameter: click.Parameter) -> str:
    names = " ".join((*parameter.opts, *parameter.secondary_opts))
    if isinstance(parameter, click.Argument):
        names = names.upper()
    kind = parameter.type
    words = [
        names,
        f"[{'|'.join(map(str, kind.choices))}]" if isinstance(kind, click.Choice) else kind.name,
    ]
    if getattr(parameter, "is_flag", False):
        words[1:] = ["flag"]
    if parameter.nargs != 1 or getattr(parameter, "multiple", False):
        words.append("repeated")
    if parameter.required:
        words.append("required")
    elif isinstance(parameter.default, (str, int, float)) and not isinstance(
        parameter.default, bool
    ):
        words.append(f"= {parameter.default}")
    return " ".join(words)


def views() -> Iterator[str]:
    with eosdb.connect(":memory:") as db:
        for view in db.views():
            yield view.name
            for column, kind in db.columns(view.name).items():
                yield f"  {column} {kind}".rstrip()


def notices() -> Iterator[str]:
    for notice in CATALOG:
        level = logging.getLevelName(notice.level)
        yield f"{notice.room} {notice.action} {level} ({', '.join(notice.fields)})"


def metrics() -> Iterator[str]:
    """Those of a file with a topic and a group; a library's counters appear when they have counted."""
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        db.broker.offset_commit("g", {eosdb.TopicPartition("t", 0): eosdb.OffsetAndMetadata(0)})
        text = db.metrics_text()
    yield from sorted(
        line.removeprefix("# TYPE ") for line in text.splitlines() if line.startswith("# TYPE ")
    )


def difference(now: str) -> str:
    """What has changed since the file was written; empty if nothing."""
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    lines = unified_diff(before.splitlines(), now.splitlines(), "promised", "now", lineterm="", n=1)
    return "\n".join(lines)


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
