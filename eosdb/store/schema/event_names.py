"""SQL that names the values of events.

The table `eosdb_journal` stores an event's values as a JSON array (`encoding`). The view `journal` shows
them as a JSON object. eosdb's own statements read single values from the table.
"""

from __future__ import annotations

import json
import typing
from typing import Any, Final

from eosdb.events.encoding import SHAPES, form
from eosdb.events.kinds import KINDS, Event
from eosdb.model.damage import parsed
from eosdb.model.values import TransactionState

_STATES: Final = json.dumps([state.label for state in TransactionState], separators=(",", ":"))
"""The names of the states, each at the place of its code."""


def member(kind: type[Event], name: str) -> str:
    """Return the SQL of one value of such an event, for a table with the column `detail`."""
    place = SHAPES[kind.__name__][0].names.index(name)
    return _or_default(kind, name, f"json_extract(detail, '$[{place}]')")


def _or_default(cls: Any, name: str, found: str) -> str:
    default = cls._field_defaults.get(name)
    if default is None:
        return found
    value = parsed((form(typing.get_type_hints(cls)[name]).text or str)(default))
    if isinstance(value, list):
        return f"json(ifnull({found}, '{json.dumps(value)}'))"
    return f"ifnull({found}, {value!r})"


def _object(cls: Any, names: tuple[str, ...], array: str, path: str = "$") -> str:
    """Return the SQL of an array's values as an object."""
    shown = [
        f"'{name}', {_shown(cls, name, array, f'{path}[{i}]')}" for i, name in enumerate(names)
    ]
    return f"json_object({', '.join(shown)})"


def _shown(cls: Any, name: str, array: str, path: str) -> str:
    hint = typing.get_type_hints(cls)[name]
    if hasattr(hint, "_fields"):
        return _object(hint, hint._fields, array, path)
    item: Any = next(iter(typing.get_args(hint)), None)
    if hasattr(item, "_fields"):
        each = "i" if array == "detail" else f"i{array.partition('.')[0]}"
        shown = _object(item, item._fields, f"{each}.value")
        return f"(SELECT json_group_array({shown}) FROM json_each({array}, '{path}') {each})"
    found = _or_default(cls, name, f"json_extract({array}, '{path}')")
    if hint in (TransactionState, TransactionState | None):
        return f"json_extract('{_STATES}', '$[' || {found} || ']')"
    return f"json(iif({found}, 'true', 'false'))" if hint is bool else found


_KINDS: Final = "\n".join(
    f"    WHEN '{kind}' THEN {_object(cls, SHAPES[kind][0].names, 'detail')}"
    for kind, cls in KINDS.items()
)
JOURNAL: Final = f"""\
-- Every event, in one total order.
CREATE VIEW journal AS
SELECT position, kind, timestamp, topic, partition, transactional_id, CASE kind
{_KINDS}
    ELSE detail END AS detail
FROM eosdb_journal
"""
