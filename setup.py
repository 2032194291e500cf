"""What pyproject.toml cannot say in a form that stays: the extension module, for any Python from 3.11 on,
and the commit that `eosdb --version` tells (`eosdb/commit.txt` of an sdist and of a wheel).

Without a compiler it is left out, and everything is done in Python (docs/decisions/0060). EOSDB_NATIVE=0,
which switches it off where it is built, leaves it out as well, and the wheel is one for any machine.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
NOTE = "eosdb/commit.txt"
DESCRIBE = "describe --always --abbrev=12 --dirty --exclude=*"


def note_commit(folder: str) -> None:
    """Write this source's commit into a folder that is built: an sdist has the note, a checkout has git."""
    if (HERE / NOTE).exists():
        shutil.copy(HERE / NOTE, Path(folder, NOTE))
    elif (HERE / ".git").exists() and shutil.which("git"):
        command = ["git", "-C", str(HERE), *DESCRIBE.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout:
            Path(folder, NOTE).write_text(done.stdout, encoding="ascii")


class Build(build):
    """Begins anew: what an earlier version left in the folder would be in this one's wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        note_commit(self.build_lib)


class Sdist(sdist):
    """With the note of the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        note_commit(base_dir)


class BuildExtension(build_ext):
    """Leaves out where this machine's Python keeps its libraries: the module needs none of them."""

    def build_extensions(self) -> None:
        linker = self.compiler.linker_so
        self.compiler.linker_so = [word for word in linker if not word.startswith("-Wl,-rpath")]
        super().build_extensions()


ACCELERATOR = Extension(
    "eosdb.native._rows",
    ["eosdb/native/_rows.c"],
    depends=["eosdb/native/_batches.h"],
    extra_compile_args=["-O3", "-g0"],
    py_limited_api=True,
    optional=True,
)

if os.environ.get("EOSDB_NATIVE") == "0":
    setup(cmdclass={"build": Build, "sdist": Sdist})
else:
    setup(
        cmdclass={"build": Build, "build_ext": BuildExtension, "sdist": Sdist},
        ext_modules=[ACCELERATOR],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
