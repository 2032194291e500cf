"""ApiVersions: the served APIs, and the features of the cluster.

Version 3: flexible, the client's software (KIP-511), the features (KIP-584); 4: features whose lowest level
is 0, which older clients refuse. Unsupported versions are answered in version 0 (`server.py`).
"""

from __future__ import annotations

import re
from typing import Final

from kafka.protocol.metadata.api_versions import ApiVersionsRequest

from eosdb.errors import InvalidRequestError
from eosdb.wire.apis import SERVED, Fields, Session, serves

_SOFTWARE: Final = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The allowed form of a client's software name and version."""


@serves(ApiVersionsRequest, 0, 4)
def api_versions(session: Session, request: ApiVersionsRequest, version: int) -> Fields:
    software = request.client_software_name, request.client_software_version
    if version >= 3 and not all(map(_SOFTWARE.fullmatch, software)):
        return {"error_code": InvalidRequestError.code}
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
