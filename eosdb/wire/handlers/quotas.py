"""Client quotas: DescribeClientQuotas and AlterClientQuotas (KIP-546).

Nothing throttles clients, so there are no quotas: removing one succeeds, setting one is refused
(decisions/0066).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from eosdb.errors import EosdbError, InvalidRequestError, UnsupportedVersionError
from eosdb.wire.errors import fields_of
from eosdb.wire.session import Session

_ENTITY_TYPES: Final = ("user", "client-id", "ip")
_ALONE: Final = "ip"
_EXACT: Final = 0
_QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
_QUOTAS_OF_IP: Final = ("connection_creation_rate",)
_MATCH_TYPES: Final = range(3)
"""An exact name, the default of the type, any name."""
_Component = DescribeClientQuotasRequest.ComponentData
_Entry = AlterClientQuotasRequest.EntryData
_Altered = AlterClientQuotasResponse.EntryData


def describe_quotas(
    session: Session, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse:
    """No quotas; `kafka-configs.sh --describe --entity-type users` asks for them first."""
    error = session.refused("describe_configs") or _filter_error(request.components)
    return DescribeClientQuotasResponse(**fields_of(error), entries=[] if error is None else None)


def alter_quotas(
    session: Session, request: AlterClientQuotasRequest, version: int
) -> AlterClientQuotasResponse:
    refusal = session.refused("alter_configs")
    return AlterClientQuotasResponse(
        entries=[
            _Altered(
                entity=[
                    _Altered.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
                **fields_of(refusal or _alteration_error(entry)),
            )
            for entry in request.entries
        ]
    )


def _filter_error(components: Sequence[_Component]) -> EosdbError | None:
    types = [component.entity_type for component in components]
    unknown = [name for name in types if name and name not in _ENTITY_TYPES]
    if unknown:
        return UnsupportedVersionError(f"entity types: got {unknown}, expected {_ENTITY_TYPES}")
    if not _go_together(types):
        return InvalidRequestError(f"entity types: got {types}, expected each once, ip alone")
    for component in components:
        kind, name = component.match_type, component.match
        if kind not in _MATCH_TYPES or (kind == _EXACT) != (name is not None):
            return InvalidRequestError(
                f"{component.entity_type}: got the match type {kind} with {name!r}, expected 0 with a "
                "name, or 1 or 2 without one"
            )
    return None


def _alteration_error(entry: _Entry) -> EosdbError | None:
    types = [part.entity_type for part in entry.entity]
    if not (types and _go_together(types) and set(types) <= set(_ENTITY_TYPES)):
        return InvalidRequestError(f"entity: got {types}, expected user, client-id, both, or ip")
    if any(part.entity_name == "" for part in entry.entity):
        return InvalidRequestError(
            "entity: got an empty name, expected one, or null for the default"
        )
    given = [op for op in entry.ops if not op.remove]
    known = _QUOTAS_OF_IP if _ALONE in types else _QUOTAS
    for op in given:
        if op.key not in known:
            return InvalidRequestError(f"got the quota {op.key!r}, expected one of {known}")
        if op.value <= 0:
            return InvalidRequestError(f"{op.key}: got {op.value}, expected more than 0")
    if not given:
        return None
    return UnsupportedVersionError("there are no quotas: nothing here throttles a client")


def _go_together(types: Sequence[str]) -> bool:
    is_alone = _ALONE not in types or len(types) == 1
    return "" not in types and len(set(types)) == len(types) and is_alone
