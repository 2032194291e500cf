"""Takes the picture of docs/top.md, a screen of `eosdb top`: `python -m scripts.make_top_picture`."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from eosdb.cli.commands.top import screen as top_screen
from eosdb.cli.commands.top.top import FigureReader
from eosdb.cli.file_command import Session
from scripts.make_ui_picture import IMAGES, make_shop

_WIDTH: Final = 120
_HEIGHT: Final = 24


def main() -> None:
    """Write the picture into docs/images."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        make_shop(path)
        with FigureReader(Session(str(path))) as reader:
            lines, _ = top_screen.frame(
                reader.take(), reader.note, top_screen.View(), _WIDTH, _HEIGHT
            )
    console = Console(
        file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, color_system="truecolor"
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop")
    # Rich's own form fetches a font from another host.
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code", "DejaVu Sans Mono")
    console.save_svg(
        str(IMAGES / "top.svg"), title="eosdb top shop.db", unique_id="top", code_format=form
    )


if __name__ == "__main__":
    main()
