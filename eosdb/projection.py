"""`apply`: one event folded into the materialized tables, whoever they belong to.

The live path and replay both come here, so they cannot disagree.
"""

from __future__ import annotations

from eosdb.coordinator import projection as coordinator_projection
from eosdb.events.kinds import KINDS, Event
from eosdb.log import projection as log_projection
from eosdb.store.writing.unit import Unit

_HANDLERS = {
    kind: tuple(
        handlers[kind]
        for handlers in (coordinator_projection.HANDLERS, log_projection.HANDLERS)
        if kind in handlers
    )
    for kind in KINDS.values()
}
if missing := [kind.__name__ for kind, handlers in _HANDLERS.items() if not handlers]:
    raise AssertionError(f"no projection folds {', '.join(missing)}")


def apply(unit: Unit, event: Event, position: int) -> None:
    """Fold `event`, which stands at `position` of the journal."""
    for handler in _HANDLERS[type(event)]:
        handler(unit, event, position)
