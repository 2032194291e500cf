"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Those of topics and groups can be altered. Broker settings are those with which the server was started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from eosdb.admin.configs import ConfigEntry
from eosdb.errors import (
    ApiError,
    EosdbError,
    InvalidConfigError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from eosdb.model.topic_config import ConfigChange, ConfigOperation
from eosdb.model.validation import check_topic_name
from eosdb.wire.errors import NONE, code_of, message_of
from eosdb.wire.handlers.topics import log_without_effect, repeated
from eosdb.wire.session import NODE_ID, Session

_TOPIC: Final = 2
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_GROUP: Final = 32
_KINDS: Final = {
    _TOPIC: "topic",
    _BROKER: "broker",
    _BROKER_LOGGER: "broker logger",
    _CLIENT_METRICS: "client metrics",
    _GROUP: "group",
}
_OF_ONE_VALUE: Final = (ConfigOperation.SET, ConfigOperation.DELETE)
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult


class _Resource(Protocol):
    resource_type: int
    resource_name: str


_R = TypeVar("_R", bound=_Resource)
_A = TypeVar("_A")


def describe_configs(
    session: Session, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        entries, code, message = list[ConfigEntry](), NONE, None
        try:
            entries = _described(session, kind, name)
        except EosdbError as error:
            code, message = code_of(error), message_of(error)
        wanted = resource.configuration_keys
        results.append(
            _Result(
                error_code=code,
                error_message=message,
                resource_type=kind,
                resource_name=name,
                configs=[
                    _shown(entry, request, read_only=kind == _BROKER)
                    for entry in entries
                    if not wanted or entry.name in wanted
                ],
            )
        )
    return DescribeConfigsResponse(results=results)


def alter_configs(
    session: Session, request: AlterConfigsRequest, version: int
) -> AlterConfigsResponse:
    """Replace a topic's settings: those not in the request return to the broker's values."""

    def change(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        changes = [
            ConfigChange(setting.name, ConfigOperation.SET, _given(setting.name, setting.value))
            for setting in resource.configs
        ]
        _change(session, resource, changes, anew=True, validate_only=request.validate_only)

    response = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=_answers(response, request.resources, change))


def alter_incrementally(
    session: Session, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    def change(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        changes = []
        for setting in resource.configs:
            if setting.config_operation not in (kind_name.value for kind_name in ConfigOperation):
                raise InvalidRequestError(
                    f"{setting.name}: got the operation {setting.config_operation}, expected 0 to 3"
                )
            operation = ConfigOperation(setting.config_operation)
            if operation is not ConfigOperation.DELETE:
                _given(setting.name, setting.value)
            changes.append(ConfigChange(setting.name, operation, setting.value))
        _change(session, resource, changes, anew=False, validate_only=request.validate_only)

    response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=_answers(response, request.resources, change))


def list_config_resources(
    session: Session, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    """No resources in version 0, which asks for client metrics (KIP-1142)."""
    wanted = (request.resource_types or list(_KINDS)) if version >= 1 else [_CLIENT_METRICS]
    if not set(wanted) <= set(_KINDS):
        return ListConfigResourcesResponse(
            error_code=UnsupportedVersionError.code, config_resources=[]
        )
    if refusal := session.refused("describe_configs"):
        return ListConfigResourcesResponse(error_code=refusal.code, config_resources=[])
    resources = [
        *((_TOPIC, name) for name in session.broker.topics()),
        (_BROKER, str(NODE_ID)),
        *((_GROUP, name) for name in session.admin.list_group_configs()),
    ]
    return ListConfigResourcesResponse(
        error_code=NONE,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in resources
            if kind in wanted
        ],
    )


def _described(session: Session, kind: int, name: str) -> list[ConfigEntry]:
    if kind == _TOPIC:
        check_topic_name(name)
        return session.admin.describe_topic_config(name)
    if kind == _BROKER:
        _check_broker(name)
        # Without a name they are the defaults of all brokers that were set meanwhile: none are.
        return session.admin.describe_broker_config() if name else []
    if kind == _GROUP:
        _check_group(name)
        return session.admin.describe_group_config(name)
    raise _not_served(kind)


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest, *, read_only: bool) -> _Entry:
    documentation = None
    if request.include_documentation and not entry.has_effect:
        documentation = "eosdb keeps it for its clients; it has no effect."
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=read_only,
        config_source=entry.source.value,
        is_default=False,
        is_sensitive=False,
        synonyms=[
            _Entry.DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source.value)
            for one in entry.candidates
        ]
        if request.include_synonyms
        else [],
        config_type=entry.kind.value,
        documentation=documentation,
    )


def _answers(
    response: Callable[..., _A], resources: Iterable[_R], change: Callable[[_R], None]
) -> list[_A]:
    """Alter one resource after another, each with its own result."""
    given = list(resources)
    twice = repeated((resource.resource_type, resource.resource_name) for resource in given)
    answers = []
    for resource in given:
        kind, name = resource.resource_type, resource.resource_name
        code, message = NONE, None
        try:
            if (kind, name) in twice:
                raise InvalidRequestError(f"{name!r} is named twice in one request; name it once")
            change(resource)
        except EosdbError as error:
            code, message = code_of(error), message_of(error)
        answers.append(
            response(resource_type=kind, resource_name=name, error_code=code, error_message=message)
        )
    return answers


def _change(
    session: Session,
    resource: _Resource,
    changes: Sequence[ConfigChange],
    *,
    anew: bool,
    validate_only: bool,
) -> None:
    kind, name = resource.resource_type, resource.resource_name
    given = [c.name for c in changes if c.operation is not ConfigOperation.DELETE]
    if kind == _BROKER:
        _check_broker(name)
        if refusal := session.refused("alter_configs"):
            raise refusal
        if given:
            raise InvalidRequestError(
                f"{', '.join(given)}: the broker's settings are those with which the file was opened; open "
                "it with others"
            )
        # As in Kafka, what is not set can be deleted.
    elif kind == _GROUP:
        _check_group(name)
        config = _group_config(changes)
        session.admin.alter_group_config(name, config, anew=anew, validate_only=validate_only)
    elif kind == _TOPIC:
        if not name:
            raise InvalidRequestError("topic: got no name, expected one; topics have no defaults")
        check_topic_name(name)
        session.admin.change_topic_config(name, changes, anew=anew, validate_only=validate_only)
        if not validate_only:
            log_without_effect(name, given)
    else:
        raise _not_served(kind)


def _group_config(changes: Sequence[ConfigChange]) -> dict[str, object | None]:
    if twice := repeated(change.name for change in changes):
        raise InvalidRequestError(f"{', '.join(twice)}: named twice; name each setting once")
    if lists := [c.name for c in changes if c.operation not in _OF_ONE_VALUE]:
        raise InvalidConfigError(f"{', '.join(lists)}: no list, so use SET or DELETE")
    return {c.name: c.value if c.operation is ConfigOperation.SET else None for c in changes}


def _check_group(name: str) -> None:
    if not name:
        raise InvalidRequestError("group: got no name, expected one; there are no default settings")


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequestError(f"{name}: got null, expected a value")
    return value


def _check_broker(name: str) -> None:
    if name not in ("", str(NODE_ID)):
        raise InvalidRequestError(f"broker {name!r}: there is broker {NODE_ID} alone")


def _not_served(kind: int) -> ApiError:
    kind_name = _KINDS.get(kind, f"resource type {kind}")
    return InvalidRequestError(
        f"settings of {kind_name}: expected those of topics, groups or the broker"
    )
