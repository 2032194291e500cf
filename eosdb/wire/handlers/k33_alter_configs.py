"""AlterConfigs: replaces settings. Settings that the request lacks return to the broker's values.

Version 2: flexible.

Also the common parts of the APIs for settings. Settings of topics and groups can be altered; the broker's
settings are fixed when the file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kafka.protocol.admin.configs import AlterConfigsRequest

from eosdb.admin.tools import Tools
from eosdb.errors import ApiError, InvalidConfigError, InvalidRequestError
from eosdb.model.topic_config import ConfigChange, ConfigOperation
from eosdb.model.validation import check_topic_name
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.handlers.k19_create_topics import log_without_effect, repeated
from eosdb.wire.session import NODE_ID

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
KINDS: Final = {
    TOPIC: "topic", BROKER: "broker", 8: "broker logger", CLIENT_METRICS: "client metrics", GROUP: "group",
}  # fmt: skip
_OF_ONE_VALUE: Final = (ConfigOperation.SET, ConfigOperation.DELETE)


@serves(AlterConfigsRequest, 0, 2)
def alter_configs(session: Session, request: AlterConfigsRequest, _: int) -> Fields:
    def changes(resource: Any) -> list[ConfigChange]:
        return [
            ConfigChange(one.name, ConfigOperation.SET, check_given(one.name, one.value))
            for one in resource.configs
        ]

    return alter_each(session, request, changes, anew=True)


def alter_each(
    session: Session, request: Any, changes: Callable[[Any], list[ConfigChange]], *, anew: bool
) -> Fields:
    """Alter one resource after another, each with its own result."""
    twice = repeated(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )

    def alter(resource: Any) -> None:
        kind, name = resource.resource_type, resource.resource_name
        if (kind, name) in twice:
            raise InvalidRequestError(f"{name!r} is named twice in one request; name it once")
        given = changes(resource)
        _alter(session, kind, name, given, anew=anew, validate_only=request.validate_only)

    return {"responses": [{**of(one), **attempt(alter, one)} for one in request.resources]}


def of(resource: Any) -> Fields:
    """The type and name of a resource, as fields of the answer."""
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _alter(
    session: Session,
    kind: int,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    anew: bool,
    validate_only: bool,
) -> None:
    given = [c.name for c in changes if c.operation is not ConfigOperation.DELETE]
    if kind == BROKER:
        check_broker(name)
        session.check("alter_configs")
        if given:
            raise InvalidRequestError(
                f"{', '.join(given)}: the broker's settings are fixed when the file is opened; open it "
                "with other settings"
            )
        # As in Kafka, the deletion of a setting that is not set is no error.
    elif kind == GROUP:
        check_group(name)
        config = _group_config(changes)
        session.admin.alter_group_config(name, config, anew=anew, validate_only=validate_only)
    elif kind == TOPIC:
        if not name:
            raise InvalidRequestError("topic: got no name, expected one; topics have no defaults")
        check_topic_name(name)
        Tools(session.admin).change_topic_config(
            name, changes, anew=anew, validate_only=validate_only
        )
        if not validate_only:
            log_without_effect(name, given)
    else:
        raise not_served(kind)


def _group_config(changes: Iterable[ConfigChange]) -> dict[str, object | None]:
    if twice := repeated(change.name for change in changes):
        raise InvalidRequestError(f"{', '.join(twice)}: named twice; name each setting once")
    if lists := [c.name for c in changes if c.operation not in _OF_ONE_VALUE]:
        raise InvalidConfigError(f"{', '.join(lists)}: no list, so use SET or DELETE")
    return {c.name: c.value if c.operation is ConfigOperation.SET else None for c in changes}


def check_group(name: str) -> None:
    if not name:
        raise InvalidRequestError("group: got no name, expected one; there are no default settings")


def check_given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequestError(f"{name}: got null, expected a value")
    return value


def check_broker(name: str) -> None:
    if name not in ("", str(NODE_ID)):
        raise InvalidRequestError(f"broker: got {name!r}, expected {NODE_ID}, the only broker")


def not_served(kind: int) -> ApiError:
    kind_name = KINDS.get(kind, f"resource type {kind}")
    return InvalidRequestError(
        f"settings of {kind_name}: expected those of topics, groups or the broker"
    )
