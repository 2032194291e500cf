"""What is published: its metadata, and what `make release` finds wrong."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

import eosdb
from scripts import pages
from scripts.builds import differences, pack_anew
from scripts.release import PLACEHOLDER, complaints, next_step
from scripts.sbom import with_sources
from tests.tidy.test_tree import project
from tests.tidy.tree import ROOT

GROUPS = {"bench", "demo", "dev", "examples", "site", "test"}


def test_the_version_is_the_same_wherever_it_stands() -> None:
    assert project()["project"]["version"] == eosdb.__version__


def test_nothing_is_published_without_the_publishers_addresses() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "put `maintainers` and `urls` into" in next_step(f"https://{PLACEHOLDER}", [])
    assert "twine upload x.whl" in next_step(
        text.replace(PLACEHOLDER, "example.org"), [Path("x.whl")]
    )


def test_extras_are_what_users_need_and_groups_what_a_checkout_needs() -> None:
    assert project()["dependency-groups"].keys() == GROUPS
    assert not project()["project"]["optional-dependencies"].keys() & GROUPS


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tests/test_x.py", "does not belong there"),
        ("eosdb/__pycache__/x.pyc", "does not belong there"),
        ("benchmarks/run.py", "does not belong there"),
        (".gitignore", "does not belong there"),
        ("eosdb/shop.db", "does not belong there"),
        ("eosdb/x.py", "names /home/someone, a folder of this machine"),
    ],
)
def test_what_does_not_belong_into_a_release_is_named(name: str, complaint: str) -> None:
    files = {"eosdb/testing/plugin.py": b"", name: b"'/home/someone/eosdb'"}
    needed = ["eosdb/py.typed"]
    found = complaints(files, needed, ["/home/someone"])
    assert "eosdb/py.typed is missing" in found
    assert f"{name} {complaint}" in found
    assert complaints({"eosdb/testing/plugin.py": b""}, [], ["/home/someone"]) == []


def test_the_tour_of_the_readme_is_found() -> None:
    tour = pages.section((ROOT / "README.md").read_text(encoding="utf-8"), "Five minutes")
    assert "eosdb.connect(" in pages.python_of(tour)
    assert "eosdb " in pages.commands_of(tour)
    with pytest.raises(LookupError, match="'Ten minutes'"):
        pages.section(tour, "Ten minutes")


def packed(folder: Path, names: list[str], mode: int, content: str = "x") -> Path:
    """An sdist as it comes from a machine."""
    folder.mkdir()
    with tarfile.open(folder / "x-1.tar.gz", "w:gz") as archive:
        for name in names:
            (folder / name).write_text(content)
            (folder / name).chmod(mode)
            os.utime(folder / name, (mode, mode))
            archive.add(folder / name, f"x-1/{name}")
    return folder / "x-1.tar.gz"


def test_an_sdist_packed_anew_tells_nothing_of_its_machine(tmp_path: Path) -> None:
    one = packed(tmp_path / "one", ["a", "b"], 0o644)
    another = packed(tmp_path / "another", ["b", "a"], 0o600)
    assert differences({"x": one}, {"x": another}) == ["x differs: order, times, owners or modes"]
    for sdist in (one, another):
        pack_anew(sdist, 1_700_000_000)
    assert one.read_bytes() == another.read_bytes()
    assert differences({"x": one}, {"x": another}) == []


def test_two_builds_that_differ_are_told_apart_by_file_and_member(tmp_path: Path) -> None:
    one = packed(tmp_path / "one", ["a", "b"], 0o644)
    another = packed(tmp_path / "another", ["a", "c"], 0o644, "y")
    assert differences({"x": one, "y": one}, {"x": another}) == [
        "y is there once",
        "x differs: a, b, c",
    ]


def test_the_bill_of_materials_has_the_sources_in_c_with_their_hashes() -> None:
    bill = with_sources({"metadata": {"component": {"name": "eosdb", "version": "9.8.7"}}})
    component = bill["metadata"]["component"]
    assert component["purl"] == "pkg:pypi/eosdb@9.8.7"
    sources = sorted((ROOT / "eosdb/native").glob("*.[ch]"))
    assert {it["name"]: it["hashes"][0]["content"] for it in component["components"]} == {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sources
    }
