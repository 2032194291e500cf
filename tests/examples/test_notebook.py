"""The notebook: every cell may be run again, and what it shows is what is stored in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    import nbformat

pytestmark = pytest.mark.process

NOTEBOOK = ROOT / "examples/sales.ipynb"
SALES = 3_000


def results(cells: list[nbformat.NotebookNode]) -> list[str]:
    """The text of every cell's result."""
    return [
        output["data"]["text/plain"]
        for cell in cells
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
        if output["output_type"] == "execute_result"
    ]


@pytest.mark.filterwarnings("ignore")  # Jupyter's own.
def test_it_can_be_run_twice_and_shows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To import it takes as long as to collect a thousand tests.
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("EOSDB_DB", str(tmp_path / "sales.db"))
    shown = nbformat.read(NOTEBOOK, as_version=4)
    twice = nbformat.v4.new_notebook(metadata=shown.metadata)
    again = nbformat.read(NOTEBOOK, as_version=4).cells
    for cell in again:
        cell["id"] += "-again"
    twice.cells = [*nbformat.read(NOTEBOOK, as_version=4).cells, *again]
    NotebookClient(twice, timeout=600, kernel_name="python3").execute()
    assert results(twice.cells) == 2 * results(shown.cells)
    file = sqlite3.connect(tmp_path / "sales.db")
    try:
        assert file.execute("SELECT count(*) FROM committed_records").fetchone() == (SALES,)
        assert file.execute("SELECT sum(amount) FROM per_day").fetchone() == (73_500,)
    finally:
        file.close()
