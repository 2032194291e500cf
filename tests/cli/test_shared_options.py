"""An option that several commands have means the same in each, so that whoever knows one knows all."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import click

from eosdb.cli.main import main
from scripts.commands import leaves

OWN: Final = {
    "--last": "the newest events, or the newest records",
    "--listen": "of the server, or of the metrics",
    "--name": "of a relay, or of a view",
    "--partition": "of `produce`: where records go; of `dlq replay`: of --offset",
    "--partitions": "of a new topic, or of one that gets more",
    "--config": "of a topic, or of the broker",
    "--from-offset": "of a listing, or of a picture",
    "--group": "of a report, or of a reader",
    "--mechanism": "of a user that is added, or removed",
    "--offset": "of dead letters, or of a snapshot",
    "--operation": "of ACLs that are added, or selected",
    "--port": "each command has its own default",
    "--principal": "of ACLs that are added, or selected",
    "--resource-name": "of ACLs that are added, or selected",
    "--resource-type": "of ACLs that are added, or selected",
    "--state": "a column more, or instead",
    "--to": "a cluster, or also a file",
    "--topic": "one, several, or partitions of one",
    "--transactional-id": "of events, or of a producer",
    "--format": "`consume` has one more",
}
"""Options with texts of their own, and of what."""


def test_an_option_of_several_commands_has_one_text() -> None:
    texts: defaultdict[str, set[str | None]] = defaultdict(set)
    context = main.make_context("eosdb", [], resilient_parsing=True)
    for command, _ in leaves(main, context):
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                texts[max(option.opts, key=len)].add(option.help)
    several = {name for name, found in texts.items() if len(found) > 1}
    assert several == OWN.keys()
