"""What `eosdb --version` says of the commit: that of a checkout, or the one that a build has noted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eosdb.cli.version import commit

pytestmark = pytest.mark.process


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_checkout_tells_its_commit_and_whether_files_have_changed(tmp_path: Path) -> None:
    package = tmp_path / "eosdb"
    package.mkdir()
    (package / "x.py").write_text("")
    assert commit(package) == ""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=x")
    assert commit(package) == git(tmp_path, "rev-parse", "--short=12", "HEAD")
    (package / "x.py").write_text("changed")
    assert commit(package).endswith("-dirty")


def test_an_installed_package_has_its_commit_from_the_build_and_not_from_a_folder_above(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init", "--quiet")
    package = tmp_path / "lib/eosdb"
    package.mkdir(parents=True)
    assert commit(package) == ""
    (package / "commit.txt").write_text("0123abc\n")
    assert commit(package) == "0123abc"
