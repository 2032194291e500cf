"""`python -m scripts.make_notices` writes docs/internals/notices.md from the catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from eosdb.model.notices.catalog import CATALOG

PAGE = Path(__file__).parent.parent / "docs/internals/notices.md"
_BEGIN, _END = "<!-- notices -->\n", "<!-- end of notices -->\n"


def with_notices(text: str) -> str:
    """The page with the list as the catalog has it."""
    return text.partition(_BEGIN)[0] + _BEGIN + "\n".join(_lines()) + _END + text.partition(_END)[2]


def _lines() -> Iterator[str]:
    for room, notices in groupby(CATALOG, lambda notice: notice.room):
        yield f"`{room}`\n"
        for notice in notices:
            fields = ", ".join(f"`{field}`" for field in notice.fields)
            about = f" ({fields})" if fields else ""
            level = logging.getLevelName(notice.level)
            yield f"- {level} `{notice.action}`{about}: {notice.meaning}"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(with_notices(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
