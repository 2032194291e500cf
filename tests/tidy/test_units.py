"""Work in several units, or on several snapshots: what it looks up twice may be another thing by then.

A function that asks for a second unit, or in a loop, is listed here with what it holds. Where it holds a
name, the name is all that is meant. A topic made anew between two units is tried out in
`tests/broker/test_made_anew_between_units.py`, and for relays and moves in `tests/integrations`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy.tree import modules, parsed

pytestmark = pytest.mark.slow

UNITS: Final = {
    "_store": {"write", "read", "begin", "alone"},
    "store": {"write", "read", "begin", "alone"},
    "_coordinator": {"write", "init_producer_id", "decided", "do_what_is_due"},
    "coordinator": {"write", "init_producer_id", "decided", "do_what_is_due"},
    "core": {"delete_rows", "reading"},
    "_core": {"delete_rows", "reading"},
    "turns": {"turn"},
    "leadership": {"decide", "complete", "recover"},
    "self": {"run_due"},
}  # fmt: skip
"""The calls that run a unit, by what they are called on."""
HOLDS: Final = {
    "eosdb.admin.groups.reset_offsets": "one of the two",
    "eosdb.admin.log.dump_log": "the id of the partition",
    "eosdb.admin.log.read_blocks": "the id of the partition",
    "eosdb.admin.topics.delete_topic": "the ids of the partitions",
    "eosdb.admin.transactions.abort_transaction": "the id of the partition, and where "
    "the transaction begins",
    "eosdb.admin.transactions.fence_producer": "the transactional id, whoever has it",
    "eosdb.admin.transactions.journal": "a position",
    "eosdb.broker.core.Core.change": "one of the two",
    "eosdb.broker.outbox._unit": "nothing; the first does what is due",
    "eosdb.broker.produce._append_all": "nothing of the first, which was rolled back",
    "eosdb.broker.reading.delete_records": "the number of the topic",
    "eosdb.broker.reading.topic": "a name, for which it answers with the topic that has it",
    "eosdb.broker.sink._begin": "the transactional id of the sink",
    "eosdb.broker.transactions.init_producer_id": "one of the two",
    "eosdb.coordinator.coordinator.TransactionCoordinator._abort_while": "a transactional id, of which it "
    "looks again whether it is due",
    "eosdb.coordinator.coordinator.TransactionCoordinator.decided": "a transactional id; the second step "
    "compares the whole transaction",
    "eosdb.coordinator.coordinator.TransactionCoordinator.look_for_the_dead": "nothing of the first",
    "eosdb.coordinator.coordinator.TransactionCoordinator.recover": "nothing; each looks for what is left",
    "eosdb.coordinator.coordinator.TransactionCoordinator.run_due": "nothing; each looks for what is due",
    "eosdb.coordinator.coordinator.TransactionCoordinator.write": "nothing of the first",
    "eosdb.maintenance.housekeeping.Round._compact": "the ids of the partitions",
    "eosdb.maintenance.housekeeping.Round._forget_producer_ids": "producer ids, which nobody gets again",
    "eosdb.maintenance.housekeeping.Round._forget_what_was_done_once": "nothing; each looks for what is "
    "due",
    "eosdb.maintenance.housekeeping.Round._free_pages": "nothing; each looks for what is due",
    "eosdb.maintenance.housekeeping.Round._move_log_starts": "the ids of the partitions",
    "eosdb.maintenance.housekeeping.Round._search": "the ids of the partitions",
    "eosdb.maintenance.housekeeping.Round._trim_history": "nothing; each looks for what is due",
    "eosdb.maintenance.housekeeping.take_snapshot": "nothing of the first",
    "eosdb.wire.parking.Parking._watch": "nothing; each looks for what is due",
}  # fmt: skip


def _is_unit(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    on = node.func.value
    name = on.attr if isinstance(on, ast.Attribute) else on.id if isinstance(on, ast.Name) else ""
    return node.func.attr in UNITS.get(name, ())


def _functions(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef):
            yield f"{name}.{node.name}", node


def _in_several_units() -> set[str]:
    found = set()
    for module in modules():
        if module.startswith("eosdb.store."):
            continue  # What a unit is made of.
        for name, function in _functions(parsed(module), module):
            nodes = list(ast.walk(function))
            loops = [node for node in nodes if isinstance(node, ast.While | ast.For)]
            again = any(_is_unit(node) for loop in loops for node in ast.walk(loop))
            if again or sum(map(_is_unit, nodes)) > 1:
                found.add(name)
    return found


def test_work_in_several_units_says_what_it_holds() -> None:
    found = _in_several_units()
    assert found - HOLDS.keys() == set(), "look whether it holds ids, try it out, and list it"
    assert HOLDS.keys() - found == set(), "these have one unit, or are gone"
