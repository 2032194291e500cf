"""The tree keeps its own promises: packaging lists, sizes, unfinished work, prose."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scripts.release import packaged
from tests.programs import ended
from tests.tidy.tree import ROOT, modules

LINES_MAX = 600
SQL_WORDS = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET|CREATE TABLE)\b")
SQL_ROOMS = (
    "eosdb.store", "eosdb.log", "eosdb.coordinator", "eosdb.admin", "eosdb.maintenance",
    "eosdb.migrations",
    "eosdb.integrations.ui.pages",  # Queries of the documented views, as any user writes them.
    "eosdb.native.accelerator",  # What it tries is one statement.
    "eosdb.integrations.datasette.plugin",  # Datasette has opened the file, not eosdb.
)  # fmt: skip
FILES_MAX = 20
LISTS = {"eosdb/wire/handlers"}
"""Folders of files that are named alike, of which nobody needs to know more than one."""
UNFINISHED = re.compile(r"NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b|pragma: no cover")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_in_the_wheel() -> None:
    listed = project()["tool"]["setuptools"]["packages"]
    packages = [name for name, path in modules().items() if path.name == "__init__.py"]
    assert sorted(listed) == sorted(packages)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.process
def test_the_wheel_adds_one_name_and_what_spark_looks_for_with_every_file(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"eosdb", "pyspark_eosdb.py"}  # decisions/0039
    assert sorted(name for name in names if ".dist-info/" not in name) == packaged()


@pytest.mark.process
@pytest.mark.real_start
def test_the_installed_wheel_makes_and_opens_files(wheel: Path, tmp_path: Path) -> None:
    """Unpacked far from the checkout: revisions and views come out of the wheel itself."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    command = [sys.executable, "-c", INSTALLED, str(tmp_path / "x.db")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = ended(command, cwd=tmp_path, env=environment)
    assert done.stdout.split() == [str(tmp_path / "site/eosdb/__init__.py"), "True"], done.stderr


INSTALLED = """
import sys
import eosdb
with eosdb.connect(sys.argv[1]) as db:
    db.admin.create_topic("t")
    db.producer().send("t", b"v").result()
    print(eosdb.__file__, db.verify().ok)
"""


def test_a_module_says_what_lives_there_and_stays_small() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    assert not [name for name, text in texts.items() if not text.lstrip().startswith('"""')]
    assert not [name for name, text in texts.items() if text.count("\n") > LINES_MAX]
    assert not [name for name, text in texts.items() if UNFINISHED.search(text)]


def test_a_room_is_small_enough_to_be_known() -> None:
    rooms = Counter(str(path.parent.relative_to(ROOT)) for path in modules().values())
    assert {room for room, files in rooms.items() if files > FILES_MAX} == LISTS


def test_the_package_holds_its_entrances_and_rooms() -> None:
    files = {path.name for path in (ROOT / "eosdb").glob("*.py")}
    # `python -m eosdb` and `eosdb.failpoints` are public names, and Python looks for them there alone.
    assert files == {"__init__.py", "__main__.py", "database.py", "errors.py", "failpoints.py"}


def test_sql_stays_in_its_rooms() -> None:
    elsewhere = {
        name
        for name, path in modules().items()
        if not name.startswith(SQL_ROOMS)
        and SQL_WORDS.search(re.sub(r'"""(?s:.*?)"""', "", path.read_text(encoding="utf-8")))
    }
    assert not elsewhere


def test_every_test_file_stands_in_a_room() -> None:
    assert not [*(ROOT / "tests").glob("test_*.py")]


def test_every_document_has_one_title() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        prose = re.sub(r"(?s)```.*?```", "", path.read_text(encoding="utf-8"))
        assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1, path
