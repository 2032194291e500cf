"""What pyproject.toml cannot say in a form that stays: the extension module, for any Python from 3.11 on.

Without a compiler it is left out, and everything is done in Python (docs/decisions/0060). EOSDB_NATIVE=0,
which switches it off where it is built, leaves it out as well, and the wheel is one for any machine.
"""

import os
import shutil

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext


class Build(build):
    """Begins anew: what an earlier version left in the folder would be in this one's wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


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
    setup(cmdclass={"build": Build})
else:
    setup(
        cmdclass={"build": Build, "build_ext": BuildExtension},
        ext_modules=[ACCELERATOR],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
