"""DescribeConfigs: the settings of topics, groups and the broker.

Version 1: the source of each setting; 3: types and documentation (KIP-569); 4: flexible.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.configs import DescribeConfigsRequest

from eosdb.admin.configs import ConfigEntry
from eosdb.model.validation import check_topic_name
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.handlers import k33_alter_configs as configs


@serves(DescribeConfigsRequest, 1, 4)
def describe_configs(session: Session, request: DescribeConfigsRequest, _: int) -> Fields:
    def described(resource: Any) -> Fields:
        kind, wanted = resource.resource_type, resource.configuration_keys
        return {
            "configs": [
                {**_shown(entry, request), "read_only": kind == configs.BROKER}
                for entry in _entries(session, kind, resource.resource_name)
                if not wanted or entry.name in wanted
            ]
        }

    return {
        "results": [{**configs.of(one), **attempt(described, one)} for one in request.resources]
    }


def _entries(session: Session, kind: int, name: str) -> list[ConfigEntry]:
    if kind == configs.TOPIC:
        check_topic_name(name)
        return session.admin.describe_topic_config(name)
    if kind == configs.BROKER:
        configs.check_broker(name)
        # An empty name asks for the dynamic defaults of all brokers; there are none.
        return session.admin.describe_broker_config() if name else []
    if kind == configs.GROUP:
        configs.check_group(name)
        return session.admin.describe_group_config(name)
    raise configs.not_served(kind)


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> Fields:
    documentation = None
    if request.include_documentation and not entry.has_effect:
        documentation = "eosdb keeps it for its clients; it has no effect."
    return {
        "like": entry,
        "config_source": entry.source.value,
        "synonyms": [
            {"like": one, "source": one.source.value}
            for one in entry.candidates
            if request.include_synonyms
        ],
        "config_type": entry.kind.value,
        "documentation": documentation,
    }
