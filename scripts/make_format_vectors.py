"""Makes tests/format/vectors.json, the test vectors for readers of files.

python -m scripts.make_format_vectors
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.format import vectors
from tests.format.test_readers import answers_of


def text(made: dict[str, object]) -> str:
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = vectors.made(Path(folder), lambda paths: answers_of("python", paths))
    vectors.VECTORS.write_text(text(made), encoding="utf-8")
