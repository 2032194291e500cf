"""What an installation consists of, as software bills of materials (CycloneDX, JSON): one of eosdb alone,
one with each extra.

The versions are those that the index gives on the day of the release; the C sources, which the wheel with
the accelerator holds compiled, are parts of eosdb itself with their hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from scripts.builds import ROOT, git, run

SOURCES: Final = ("eosdb/native/_rows.c", "eosdb/native/_batches.h")
COMPILED: Final = "eosdb/native/_rows.abi3.so"
"""What the wheel has instead of the sources."""


def project() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return content["project"]  # type: ignore[no-any-return]


def extras() -> list[str]:
    return [name for name, packages in project()["optional-dependencies"].items() if packages]


def with_sources(bill: dict[str, Any]) -> dict[str, Any]:
    """The bill with what eosdb itself is made of: its name for other programs, and its C sources."""
    component = bill["metadata"]["component"]
    component["purl"] = f"pkg:pypi/{component['name']}@{component['version']}"
    component["components"] = [
        {
            "type": "file",
            "bom-ref": source,
            "name": source,
            "description": f"compiled into {COMPILED}",
            "hashes": [
                {
                    "alg": "SHA-256",
                    "content": hashlib.sha256((ROOT / source).read_bytes()).hexdigest(),
                }
            ],
        }
        for source in SOURCES
    ]
    return bill


def write_bills(wheel: Path, folder: Path, dist: Path) -> Iterator[Path]:
    """One for each way to install the wheel, each resolved in an environment of its own."""
    name = f"eosdb-{project()['version']}"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct")}
    quiet = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
    for extra in (None, *extras()):
        place = folder / (extra or "alone")
        venv.create(place)
        python = place / "bin/python"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        run(sys.executable, "-m", "pip", "--python", python, *quiet, wanted)
        bill = dist / f"{name}{f'-{extra}' if extra else ''}.cdx.json"
        made = ("environment", python, "--pyproject", ROOT / "pyproject.toml")
        form = ("--mc-type", "library", "--output-reproducible", "--of", "JSON", "-o", bill)
        run(sys.executable, "-m", "cyclonedx_py", *made, *form, env=environment)
        content = with_sources(json.loads(bill.read_text(encoding="utf-8")))
        bill.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        yield bill
