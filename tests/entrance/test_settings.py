"""The settings that programs need come first, and those without effect are one table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

import eosdb
from eosdb.coordinator.groups.configs import GROUP_SETTINGS
from eosdb.model.topic_config import TOPIC_SETTINGS, without_effect
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/reference/database.md").read_text(encoding="utf-8")
FIRST: dict[Callable[..., object], list[str]] = {
    eosdb.BrokerConfig: re.findall(r"(?m)^\| `([a-z_]+)` \|", PAGE),
    eosdb.Database.producer: [
        "transactional_id", "key_serializer", "value_serializer", "linger_ms", "partitioner",
    ],
    eosdb.Database.consumer: [
        "key_deserializer", "value_deserializer", "auto_offset_reset", "enable_auto_commit",
        "isolation_level",
    ],
    eosdb.process: [
        "value_deserializer", "key_deserializer", "dead_letter_topic", "max_attempts", "retry_delays_ms",
    ],
}  # fmt: skip
BEFORE = {"db", "topics", "handler", "sink", "until_idle_ms", "group_id", "transport"}


@pytest.mark.parametrize("call", FIRST, ids=lambda call: str(call.__name__))
def test_help_begins_with_the_settings_that_programs_need(call: Callable[..., object]) -> None:
    keywords = [
        each.name
        for each in inspect.signature(call).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.name not in BEFORE
    ]
    if call is eosdb.process:
        keywords.remove("transactional_id")
    assert len(FIRST[call]) == 5
    assert keywords[:5] == FIRST[call]


def test_the_page_has_every_setting_without_effect() -> None:
    section = PAGE.partition("### Settings of topics and groups without effect")[2]
    topics, _, groups = section.partition("\n## ")[0].partition("Of a group")
    assert sorted(re.findall(r"`([a-z0-9.]+)`", topics)) == without_effect(TOPIC_SETTINGS)
    kept = [name for name, setting in GROUP_SETTINGS.items() if not setting.field]
    assert sorted(re.findall(r"`([a-z0-9.]+)`", groups)) == kept
