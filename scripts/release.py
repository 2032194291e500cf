"""Builds what is published and tries it as a user would (`make release`); publishes nothing.

Sdist and wheels, each built twice (scripts/builds.py); `twine check --strict`; what is in them; which wheel
pip takes; then each wheel in a new environment outside the tree: the README's five minutes twice, and files
of earlier versions. Bills of materials (scripts/sbom.py) and the sums of everything lie beside.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from scripts import builds, pages, sbom
from scripts.builds import PURE, ROOT, contents, run
from scripts.sbom import COMPILED, SOURCES

DIST: Final = ROOT / "dist"
TOUR: Final = "Five minutes"
PLACEHOLDER: Final = "eosdb.invalid"
"""What pyproject.toml has for addresses that only a publisher knows."""
UNDER_EOSDB: Final = ("cli", "migrations", "spark_io")
"""Folders of the tree that are packages of eosdb in the wheel."""
OF_EARLIER_VERSIONS: Final = sorted((ROOT / "tests/data").glob("schema_*.db"))
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
    noted = {"eosdb/commit.txt"} if (ROOT / ".git").exists() else set()
    return sorted({"pyspark_eosdb.py", COMPILED, *files, *noted} - {*SOURCES})


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


def check_contents(files: Iterable[Path]) -> None:
    machine = {str(ROOT), str(Path.home())} - {"/"}
    under_eosdb = re.compile(f"^eosdb/({'|'.join(UNDER_EOSDB)})/")
    python = {*packaged()} - {COMPILED}
    found = []
    for file in files:
        needed: Iterable[str] = {*python, COMPILED}
        if file.suffix != ".whl":
            sources = {under_eosdb.sub(r"\1/", name) for name in python}
            needed = {*sources, "LICENSE", "README.md", "setup.py", *SOURCES}
        elif file.name.endswith(PURE):
            needed = python
        found += [
            f"{file.name}: {it}" for it in complaints(contents(file), sorted(needed), machine)
        ]
    if found:
        raise SystemExit("\n".join(found))


def check_choice(native: Path, pure: Path, folder: Path) -> None:
    """pip takes the accelerator where it runs, and the other wheel elsewhere."""
    machine = platform.machine()
    expected = {
        "": native,
        f"musllinux_1_2_{machine}": pure,
        "macosx_14_0_arm64": pure,
        "manylinux_2_28_riscv64": pure,
    }
    from_dist = ("--quiet", "--no-index", "--find-links", DIST, "--no-deps")
    for system, wheel in expected.items():
        place = folder / (system or "here")
        elsewhere = ("--platform", system, "--python-version", "3.13") if system else ()
        options = (*from_dist, "--only-binary", ":all:", *elsewhere, "--dest", place)
        run(sys.executable, "-m", "pip", "download", *options, "eosdb")
        (taken,) = place.iterdir()
        if taken.name != wheel.name:
            raise SystemExit(f"pip takes {taken.name} on {system or 'this machine'}")


def environment_of(wheel: Path, folder: Path) -> dict[str, object]:
    """How `run` starts a program of a new environment that has the wheel."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv/bin"
    quiet = ("install", "--quiet", "--disable-pip-version-check")
    run(programs / "python", "-m", "pip", *quiet, wheel)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "EOSDB"))}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    return {"cwd": folder, "env": environment}


def take_the_tour(wheel: Path, folder: Path) -> None:
    """The README's first five minutes, twice, in an environment of the wheel; and
    files of earlier versions."""
    tour = pages.section((ROOT / "README.md").read_text(encoding="utf-8"), TOUR)
    there = environment_of(wheel, folder)
    (folder / "tour.py").write_text(pages.python_of(tour), encoding="utf-8")
    run("eosdb", "--version", **there)
    run("python", "-m", "eosdb", "--version", **there)
    for _ in range(2):
        run("python", "tour.py", **there)
        run("bash", "-euc", pages.commands_of(tour), **there)
    upgrade(folder, there)


def upgrade(folder: Path, there: Mapping[str, object]) -> None:
    old = [Path(shutil.copy(path, folder)) for path in OF_EARLIER_VERSIONS]
    run("python", Path(__file__).with_name("upgrade_trial.py"), *sorted(old), **there)


def sums(files: Iterable[Path]) -> str:
    """As `sha256sum` prints them, and `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = builds.build_twice(folder / "builds", DIST)
        (sdist,) = (path for path in built if path.suffix != ".whl")
        (pure,) = (path for path in built if path.name.endswith(PURE))
        (native,) = {*built} - {sdist, pure}
        run(sys.executable, "-m", "twine", "check", "--strict", *built)
        check_contents(built)
        check_choice(native, pure, folder / "choice")
        for wheel in (native, pure):
            (folder / wheel.stem).mkdir()
            take_the_tour(wheel, folder / wheel.stem)
        bills = [*sbom.write_bills(native, folder / "bills", DIST)]
    text = sums([*built, *bills])
    (DIST / "SHA256SUMS").write_text(text, encoding="utf-8")
    print(f"built twice, byte for byte the same; bills of materials beside:\n{text}")
    print(f"nothing was published; {next_step((ROOT / 'pyproject.toml').read_text(), built)}")


def next_step(project: str, built: Iterable[Path]) -> str:
    """How to publish these files, or what `pyproject.toml` lacks for it."""
    if PLACEHOLDER in project:
        return (
            "first put `maintainers` and `urls` into pyproject.toml (docs/internals/releasing.md)"
        )
    return f"this would do it:\n    {sys.executable} -m twine upload {' '.join(map(str, built))}"


if __name__ == "__main__":
    main()
