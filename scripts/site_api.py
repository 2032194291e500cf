"""What the reference on the site says beside the docstrings: griffe's extensions for `make site`.

A client's settings stand twice in the code: as a TypedDict that type checkers read, and as a dataclass with
the defaults and what each means. Readers see both as one. Named tuples are shown as they are made, enums
with their members, Kafka's errors with their numbers, and the methods of a broker with the fields of the
requests that they make.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from enum import Enum
from importlib import import_module
from typing import Any, Final

from griffe import (
    Attribute,
    Class,
    Docstring,
    Extension,
    Function,
    Parameter,
    ParameterKind,
    Parameters,
)

from eosdb import errors
from eosdb.errors import ApiError
from eosdb.model import requests

_CHECKED: Final = {
    "ConsumerConfig": "ConsumerSettings",
    "ProcessorConfig": "ProcessorSettings",
    "ProducerConfig": "ProducerSettings",
    "RelayOptions": "RelaySettings",
}
"""The dataclass that checks a TypedDict's settings, in the same module."""
_NOISE: Final = {"class-attribute", "instance-attribute", "module-attribute"}
_ERROR: Final = re.compile(rf"(?<!`)\b({'|'.join(errors.__all__)})\b(?!`)")
"""An error that a docstring speaks of becomes a link."""
_FACE: Final = re.compile(r"(?:face|method_of)\((\w+)\.(\w+)\)")
"""A method of the broker that makes a request of this type, or of `Admin` that calls this function."""
_SENTENCE: Final = re.compile(r"^ +(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
"""A setting that the docstring of a TypedDict describes, so that `help` shows it, too."""
_ANSWER: Final = re.compile(r"\w+\[(.*)\]")
_MODULE: Final = re.compile(r"\b(values|reports)\.")
_KINDS: Final[dict[Any, ParameterKind]] = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: ParameterKind.keyword_only,
}


class Reference(Extension):
    """Completes the objects of a package when all of it has been read."""

    def on_package(self, *, pkg: Any, **_: object) -> None:
        everything = _within(pkg)
        for each in everything:
            if each.docstring is not None:
                each.docstring.value = _ERROR.sub(r"[\1][eosdb.\1]", each.docstring.value)
            if each.is_attribute and (made := _FACE.fullmatch(str(each.value))):
                each.parent.set_member(each.name, _face(each, pkg, *made.groups()))
        for cls in everything:
            if not cls.is_class:
                continue
            bases = {str(base).rpartition(".")[2] for base in cls.bases}
            if cls.name in _CHECKED:
                _document_settings(cls, cls.module[_CHECKED[cls.name]])
            elif "NamedTuple" in bases:
                _add_signature(cls)
            elif bases & {"Enum", "IntEnum", "StrEnum"}:
                _list_members(cls)
            elif "code" in cls.keywords:
                _add_number(cls)
        for each in everything:
            each.labels -= _NOISE


def _within(package: Any) -> list[Any]:
    found = []
    for member in package.members.values():
        if not member.is_alias:
            found += [member, *_within(member)]
    return found


def _made(cls: Class) -> Any:
    """The class itself."""
    return getattr(import_module(cls.module.path), cls.name)


def _document_settings(given: Class, checked: Class) -> None:
    head, _, settings = (
        given.docstring.value.partition("Attributes:\n") if given.docstring else [""] * 3
    )
    sentences = dict(_SENTENCE.findall(settings))
    if given.docstring is not None:
        given.docstring.value = head.strip()
    for field in fields(_made(checked)):
        explained = checked[field.name]
        if (
            field.name not in given.members
        ):  # A keyword of the method itself, which types depend on.
            given.set_member(field.name, Attribute(field.name, annotation=explained.annotation))
        setting = given[field.name]
        assert isinstance(setting, Attribute)
        setting.value = _default(field)
        setting.docstring = explained.docstring
        if field.name in sentences:
            text = " ".join(sentences[field.name].split())
            setting.docstring = Docstring(text, parent=setting)


def _default(field: Field[Any]) -> str:
    value: Any = field.default_factory() if field.default_factory is not MISSING else field.default
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:_}" if is_number and value >= 10_000 else repr(value)


def _add_signature(cls: Class) -> None:
    parameters = [
        Parameter(
            name,
            annotation=attribute.annotation,
            kind=ParameterKind.positional_or_keyword,
            default=attribute.value,
        )
        for name, attribute in cls.attributes.items()
        if "instance-attribute" in attribute.labels
    ]
    cls.set_member("__init__", Function("__init__", parameters=Parameters(*parameters)))


def _face(of: Attribute, package: Any, module: str, kind: str) -> Function:
    """A method of `Admin` is a function without the core; one of the broker takes the fields of a request,
    and returns the answer."""
    if module != "requests":
        asked = package[of.module.resolve(module).removeprefix("eosdb.")][kind]
        method = Function(
            of.name,
            parameters=Parameters(
                Parameter("self", kind=ParameterKind.positional_or_keyword),
                *[*asked.parameters][1:],
            ),
            returns=asked.returns,
        )
        method.docstring = asked.docstring
        return method
    made = getattr(requests, kind)
    answer = _ANSWER.fullmatch(str(package["model.requests"][kind].bases[0]))
    assert answer is not None, kind
    method = Function(
        of.name,
        parameters=Parameters(
            Parameter("self", kind=ParameterKind.positional_or_keyword),
            *(
                Parameter(
                    field.name,
                    annotation=str(field.annotation),
                    kind=_KINDS[field.kind],
                    default=None if field.default is field.empty else _shown(field.default),
                )
                for field in inspect.signature(made).parameters.values()
            ),
        ),
        returns=_MODULE.sub("", answer[1]),
    )
    method.docstring = Docstring(
        _ERROR.sub(r"[\1][eosdb.\1]", inspect.getdoc(made) or ""), parent=method
    )
    return method


def _shown(default: object) -> str:
    return "lambda: False" if callable(default) else repr(default)


def _list_members(cls: Class) -> None:
    made = _made(cls)
    assert issubclass(made, Enum)
    if cls.docstring is None:
        return  # Not one of the reference.
    members = "".join(f"\n- `{member.name}` = `{member.value!r}`" for member in made)
    cls.docstring.value += f"\n\nMembers:\n{members}"


def _add_number(cls: Class) -> None:
    error = _made(cls)
    assert issubclass(error, ApiError)
    assert cls.docstring is not None, cls.path
    retriable = ", retriable" if error.retriable else ""
    cls.docstring.value += f"\n\nKafka's error {error.code}, `{error.name}`{retriable}."
