"""`python -m scripts.make_notices` writes the table of docs/observability.md, from the catalog."""

from __future__ import annotations

import logging
from pathlib import Path

from eosdb.model.notices.catalog import CATALOG

PAGE = Path(__file__).parent.parent / "docs" / "observability.md"
_HEAD = "| --- | --- | --- | --- | --- |\n"


def with_table(text: str) -> str:
    """The page with the table as the catalog has it."""
    before, _, rest = text.partition(_HEAD)
    after = rest[rest.index("\n\n") :] if "\n\n" in rest else rest
    rows = [
        f"| `{notice.room}` | {logging.getLevelName(notice.level)} | `{notice.action}` | "
        f"{', '.join(f'`{field}`' for field in notice.fields)} | {notice.meaning} |"
        for notice in CATALOG
    ]
    return before + _HEAD + "\n".join(rows) + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
