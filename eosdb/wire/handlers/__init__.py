"""One file for each API, named after its key and name: the history of its versions, and its handler.

The constant answers of a single broker are one table, `one_broker` (decisions/0082).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from eosdb.wire.apis import SERVED, Api

for _file in iter_modules(__path__, f"{__name__}."):
    import_module(_file.name)

APIS: Final[dict[int, Api]] = dict(sorted(SERVED.items()))
"""Every API that is served, by its key."""
