"""IncrementalAlterConfigs: alters settings one by one (KIP-339).

Version 1: flexible.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest

from eosdb.errors import InvalidRequestError
from eosdb.model.topic_config import ConfigChange, ConfigOperation
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k33_alter_configs import alter_each, check_given


@serves(IncrementalAlterConfigsRequest, 0, 1)
def alter_incrementally(
    session: Session, request: IncrementalAlterConfigsRequest, _: int
) -> Fields:
    return alter_each(
        session, request, lambda resource: [_change(one) for one in resource.configs], anew=False
    )


def _change(setting: Any) -> ConfigChange:
    if setting.config_operation not in (operation.value for operation in ConfigOperation):
        raise InvalidRequestError(
            f"{setting.name}: got the operation {setting.config_operation}, expected 0 to 3"
        )
    operation = ConfigOperation(setting.config_operation)
    if operation is not ConfigOperation.DELETE:
        check_given(setting.name, setting.value)
    return ConfigChange(setting.name, operation, setting.value)
