"""All judges, the quick ones first."""

from __future__ import annotations

from typing import Final

from tests.judges import connect, copier, franz, java, kcat, python_clients, spark, streams, tools

JUDGES: Final = [
    judge
    for module in (java, kcat, tools, franz, python_clients, copier, spark, connect, streams)
    for judge in module.JUDGES
]
