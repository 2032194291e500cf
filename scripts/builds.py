"""The sdist and both wheels, built of the last commit in two folders under conditions that differ, and
compared byte for byte.

What a build takes from its machine is taken away: the time is that of the commit (SOURCE_DATE_EPOCH), the
umask is fixed, and the sdist, for which setuptools heeds neither, is packed anew. Wheels are made of it.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
UMASK: Final = 0o022
PURE: Final = "-py3-none-any.whl"
"""How the name of the wheel without the accelerator ends; pip takes it where the other does not fit."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What may differ between two machines that build the same commit."""

    folder: str
    umask: int
    environment: Mapping[str, str]
    modified: int | None = None
    """The time of the files of the checkout; None: now."""


CONDITIONS: Final = (
    Condition("one", 0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    Condition(
        "another/with a longer name",
        0o077,
        {
            "TZ": "Pacific/Kiritimati",
            "LC_ALL": "C",
            "PYTHONHASHSEED": "2",
            "USER": "somebody",
            "LOGNAME": "somebody",
        },
        modified=1_000_000_000,
    ),
)


def run(*command: str | Path, **options: object) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), check=True, **options)  # type: ignore[call-overload]


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


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


def pack_anew(sdist: Path, epoch: int) -> None:
    """The same files without what tells of the machine: order, times, owners, modes."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda it: it.name)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as anew:
            for member in members:
                member.mtime, member.pax_headers = epoch, {}
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() else 0o644
                anew.addfile(member, archive.extractfile(member))
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def build(condition: Condition, folder: Path) -> dict[str, Path]:
    """The last commit's sdist and wheels under this condition, by their names."""
    epoch = git("log", "-1", "--format=%ct")
    checkout, parts, output = folder / "checkout", folder / "parts", folder / "dist"
    parts.mkdir(parents=True)
    clone = ("git", "clone", "--quiet", "--no-local", "--depth=1", ROOT.as_uri(), checkout)
    run(*clone, umask=condition.umask)
    if (modified := condition.modified) is not None:
        for path in checkout.rglob("*"):
            os.utime(path, (modified, modified), follow_symlinks=False)
    environment = {**os.environ, **condition.environment, "SOURCE_DATE_EPOCH": epoch}
    environment["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment.pop("EOSDB_NATIVE", None)
    here = {"env": environment, "umask": UMASK}
    quiet = {**here, "stdout": subprocess.DEVNULL}
    run(sys.executable, "-m", "build", "--sdist", "--outdir", output, checkout, **quiet)
    (sdist,) = output.glob("*.tar.gz")
    pack_anew(sdist, int(epoch))
    run("tar", "-xzf", sdist, "-C", parts, **here)
    (unpacked,) = parts.iterdir()
    wheel = (sys.executable, "-m", "build", "--wheel", "--outdir")
    without = {**quiet, "env": {**environment, "EOSDB_NATIVE": "0"}}
    run(*wheel, output, unpacked, **without)
    run(*wheel, parts, unpacked, **quiet)
    (native,) = parts.glob("*.whl")
    if sys.platform == "linux":  # Its name says the oldest glibc that it runs with, as PyPI asks.
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", output, native, **here)
    else:
        shutil.copy(native, output)
    return {path.name: path for path in sorted(output.iterdir())}


def differences(one: Mapping[str, Path], another: Mapping[str, Path]) -> list[str]:
    """Which files two builds do not have in common, and which members of them differ."""
    found = [f"{name} is there once" for name in sorted(one.keys() ^ another.keys())]
    for name in sorted(one.keys() & another.keys()):
        if one[name].read_bytes() == another[name].read_bytes():
            continue
        first, second = contents(one[name]), contents(another[name])
        members = [it for it in sorted({*first, *second}) if first.get(it) != second.get(it)]
        found.append(f"{name} differs: {', '.join(members) or 'order, times, owners or modes'}")
    return found


def build_twice(folder: Path, dist: Path) -> list[Path]:
    """The files to be published, in `dist`. Raises SystemExit where two builds differ."""
    if uncommitted := git("status", "--porcelain"):
        raise SystemExit(f"the last commit is what is released; commit or undo:\n{uncommitted}")
    one, another = (build(it, folder / it.folder) for it in CONDITIONS)
    if found := differences(one, another):
        raise SystemExit("\n".join(["two builds of one commit differ", *found]))
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    return [Path(shutil.copy(path, dist)) for path in one.values()]
