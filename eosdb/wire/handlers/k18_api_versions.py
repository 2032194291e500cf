"""ApiVersions: the served APIs, and the features of the cluster.

Version 3: flexible, the client's software (KIP-511), the features (KIP-584); 4: features whose lowest level
is 0, which older clients refuse; 5: the cluster and the broker that the client expects (KIP-1242).
Unsupported versions are answered in version 0 (`server.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from eosdb.errors import InvalidRequestError
from eosdb.wire.apis import SERVED, Fields, Session, serves
from eosdb.wire.errors import REBOOTSTRAP_REQUIRED
from eosdb.wire.schemas import ApiVersionsRequest
from eosdb.wire.session import NODE_ID

_SOFTWARE: Final = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The allowed form of a client's software name and version."""
_ANYWHERE: Final = (None, -1)
"""The cluster and the broker that a client without metadata expects."""


@serves(ApiVersionsRequest, 0, 5)
def api_versions(session: Session, request: Any, version: int) -> Fields:
    software = request.client_software_name, request.client_software_version
    if version >= 3 and not all(map(_SOFTWARE.fullmatch, software)):
        return {"error_code": InvalidRequestError.code}
    expected = request.cluster_id, request.node_id
    if version >= 5 and expected not in (_ANYWHERE, (session.cluster_id, NODE_ID)):
        is_half = request.cluster_id is None or request.node_id == -1
        return {"error_code": InvalidRequestError.code if is_half else REBOOTSTRAP_REQUIRED}
    features = session.features()
    return {
        "api_keys": [
            {"api_key": api.key, "min_version": api.lowest, "max_version": api.highest}
            for _, api in sorted(SERVED.items())
        ],
        "supported_features": [
            {"name": name, "max_version": level} for name, level in features.items() if version >= 4
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in features.items()
        ],
    }
