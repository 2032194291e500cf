"""Features of the cluster and their finalized levels (KIP-584): for ApiVersions, and UpdateFeatures.

A level follows from how the file was opened. So an update to the level that is finalized succeeds, and any
other is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka.protocol.admin.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafka.protocol.metadata.api_versions import ApiVersionsResponse

from eosdb.errors import EosdbError
from eosdb.wire.errors import InvalidUpdateVersionError, fields_of
from eosdb.wire.session import Session

_UPGRADE_TYPES: Final = (1, 2, 3)
"""An upgrade, a safe downgrade, an unsafe one."""
_Update = UpdateFeaturesRequest.FeatureUpdateKey


class Feature(NamedTuple):
    """A feature with the highest level that is supported (the lowest is 0), which is the finalized one."""

    name: str
    level: int


def features(session: Session) -> list[Feature]:
    return [
        Feature("group.version", 1),
        Feature("transaction.version", session.broker.transaction_version),
    ]


def supported(session: Session) -> list[ApiVersionsResponse.SupportedFeatureKey]:
    return [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=level)
        for name, level in features(session)
    ]


def finalized(session: Session) -> list[ApiVersionsResponse.FinalizedFeatureKey]:
    return [
        ApiVersionsResponse.FinalizedFeatureKey(
            name=name, max_version_level=level, min_version_level=level
        )
        for name, level in features(session)
    ]


def update_features(
    session: Session, request: UpdateFeaturesRequest, version: int
) -> UpdateFeaturesResponse:
    """Check the updates; none changes anything. All are refused if one is."""
    refusal: EosdbError | None = session.refused("alter")
    levels = dict(features(session))
    for update in request.feature_updates:
        refusal = refusal or _error(levels, update, version)
    return UpdateFeaturesResponse(
        **fields_of(refusal),
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.feature, **fields_of(None))
            for update in request.feature_updates
            if version <= 1 and refusal is None
        ],
    )


def _error(
    levels: dict[str, int], update: _Update, version: int
) -> InvalidUpdateVersionError | None:
    name, level = update.feature, update.max_version_level
    if name not in levels:
        reason = "expected one of " + ", ".join(levels)
    elif version >= 1 and update.upgrade_type not in _UPGRADE_TYPES:
        reason = f"upgrade_type: got {update.upgrade_type}, expected one of {_UPGRADE_TYPES}"
    elif level != levels[name]:
        reason = f"this server supports level {levels[name]} of it, which is set"
    else:
        return None
    return InvalidUpdateVersionError(f"feature {name!r}, level {level}: {reason}")
