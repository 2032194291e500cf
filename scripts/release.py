"""Builds what is published and tries it as a user would (`make release`); publishes nothing.

Sdist, then the wheel from the sdist; `twine check --strict`; what is in both; then the wheel in a new
environment outside the tree, where the README's five minutes run twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from scripts import pages

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
TOUR: Final = "Five minutes"
UNDER_EOSDB: Final = ("cli", "migrations", "spark_io")
"""Folders of the tree that are packages of eosdb in the wheel."""
SOURCES: Final = ("eosdb/native/_rows.c", "eosdb/native/_batches.h")
COMPILED: Final = "eosdb/native/_rows.abi3.so"
"""What the wheel has instead of the sources."""
NOT_WANTED: Final = re.compile(
    r"(^|/)(tests?|benchmarks|demo|examples|__pycache__|\.\w[^/]*)(/|$)|\.(pyc|db)$"
)


def packaged() -> list[str]:
    """Every file of the packages, by its name in the wheel."""
    packages = {"eosdb": "eosdb", **{name: f"eosdb/{name}" for name in UNDER_EOSDB}}
    files = {
        f"{name}/{path.relative_to(ROOT / folder)}"
        for folder, name in packages.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted({"eosdb_main.py", "pyspark_eosdb.py", COMPILED, *files} - {*SOURCES})


def complaints(
    files: Mapping[str, bytes], needed: Iterable[str], machine: Iterable[str]
) -> list[str]:
    """What is missing, what does not belong there, and which files name a folder of this machine."""
    return [
        *(f"{name} is missing" for name in needed if name not in files),
        *(f"{name} does not belong there" for name in files if NOT_WANTED.search(name)),
        *(
            f"{name} names {folder}, a folder of this machine"
            for name, content in files.items()
            for folder in machine
            if folder.encode() in content
        ),
    ]


def contents(archive: Path) -> dict[str, bytes]:
    """The files of a wheel, or of an sdist without its folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    found = {}
    with tarfile.open(archive) as sdist:
        for member in sdist:
            content = sdist.extractfile(member)
            if content is not None:
                found[member.name.partition("/")[2]] = content.read()
    return found


def check_contents(sdist: Path, wheel: Path) -> None:
    machine = {str(ROOT), str(Path.home())} - {"/"}
    found = complaints(contents(wheel), packaged(), machine)
    under_eosdb = re.compile(f"^eosdb/({'|'.join(UNDER_EOSDB)})/")
    needed = {under_eosdb.sub(r"\1/", name) for name in packaged()} - {COMPILED}
    others = ("LICENSE", "README.md", "setup.py", *SOURCES)
    found += complaints(contents(sdist), [*needed, *others], machine)
    if found:
        raise SystemExit("\n".join(found))


def run(*command: str | Path, **options: object) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), check=True, **options)  # type: ignore[call-overload]


def build() -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of it."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def take_the_tour(wheel: Path, folder: Path) -> None:
    """The README's first five minutes, twice, in an environment of the wheel and the extras named there."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv/bin"
    python = programs / "python"
    tour = pages.section((ROOT / "README.md").read_text(encoding="utf-8"), TOUR)
    extras = ",".join(sorted(set(re.findall(r"install '\.\[(\w+)\]'", tour))))
    quiet = ("install", "--quiet", "--disable-pip-version-check")
    run(python, "-m", "pip", *quiet, f"{wheel}[{extras}]" if extras else wheel)
    (folder / "tour.py").write_text(pages.python_of(tour), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    there = {"cwd": folder, "env": environment}
    run("eosdb", "--version", **there)
    run("python", "-m", "eosdb", "--version", **there)
    for _ in range(2):
        run("python", "tour.py", **there)
        run("bash", "-euc", pages.commands_of(tour), **there)


def main() -> None:
    sdist, wheel = build()
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    check_contents(sdist, wheel)
    with tempfile.TemporaryDirectory() as folder:
        take_the_tour(wheel, Path(folder))
    print(
        "nothing was published; this would do it, with auditwheel for the name that PyPI asks for:"
    )
    print(f"    auditwheel repair --wheel-dir {DIST} {wheel}")
    print(f"    {sys.executable} -m twine upload {sdist} {DIST}/*manylinux*.whl")


if __name__ == "__main__":
    main()
