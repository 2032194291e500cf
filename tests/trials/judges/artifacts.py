"""What judges are made of, fetched once into a folder that git ignores.

Jars come by the Ivy that PySpark ships, which Spark's own `--packages` uses, so that no Maven is needed;
Go's modules by `go`, Python's packages by `pip`, Debian's by `apt-get`. Each knows its registry itself, or
is told by its own settings (Ivy by a settings file that EOSDB_IVY_SETTINGS names).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from tests.tidy.tree import ROOT
from tests.trials.judges.verdicts import MissingError

CACHE: Final = ROOT / ".judges"
KAFKA: Final = "4.4.0"
"""Of the Java clients and the command-line tools."""
CONNECT: Final = "4.3.1"
"""Of Connect, MirrorMaker and Streams' smoke test: Maven Central has no connect-file and no connect-mirror
of 4.4.0."""
KAFKA_BEFORE: Final = "4.1.1"
"""Of the command-line tools, too, and of the broker whose answers are expected."""
SPARK: Final = "4.0.0"
FRANZ_GO: Final = "v1.22.2"
QUIET: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
"""With the logging jar: what goes wrong, and no more."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A program that lives for seconds is over before thorough compilation pays."""
_FETCH_S: Final = 1200


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar and what it needs at run time."""

    group: str
    name: str
    version: str
    classifiers: tuple[str, ...] = ()
    """Further jars of the same module, such as its tests."""

    def as_ivy(self) -> str:
        artifacts = ["", *(f" m:classifier={quoteattr(it)}" for it in self.classifiers)]
        inner = "".join(
            f'<artifact name={quoteattr(self.name)} type="jar" ext="jar"{it}/>' for it in artifacts
        )
        attributes = (
            f"org={quoteattr(self.group)} name={quoteattr(self.name)} rev={quoteattr(self.version)}"
        )
        return f'<dependency {attributes} conf="default->default(runtime),runtime">{inner}</dependency>'


def kafka_jar(name: str, *classifiers: str, version: str = KAFKA) -> Jar:
    return Jar("org.apache.kafka", name, version, classifiers)


def logging_jar() -> Jar:
    return Jar("org.slf4j", "slf4j-simple", "1.7.36")


def java() -> str:
    """Raises MissingError when there is no Java."""
    if found := shutil.which("java"):
        return found
    raise MissingError("no Java; apt-get install default-jdk-headless")


def javac() -> str:
    """Raises MissingError when there is no Java compiler."""
    if found := shutil.which("javac"):
        return found
    raise MissingError("no Java compiler; apt-get install default-jdk-headless")


def class_path(name: str, jars: Sequence[Jar]) -> str:
    """The jars and what they need, in a folder of this name. Raises MissingError."""
    folder = CACHE / "jars" / name
    ready = folder / "ready"
    wanted = repr(jars)
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _retrieve(folder, jars)
        ready.write_text(wanted)
    return f"{folder}/*"


def _retrieve(folder: Path, jars: Sequence[Jar]) -> None:
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="eosdb" module="judges"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(jar.as_ivy() for jar in jars)}</dependencies></ivy-module>"
    )
    command = [java(), "-jar", str(_ivy()), "-ivy", str(module), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    if settings := os.environ.get("EOSDB_IVY_SETTINGS"):
        command += ["-settings", settings]
    _fetch(command, folder / "ivy.log", ", ".join(f"{jar.name} {jar.version}" for jar in jars))
    if not [*folder.glob("*.jar")]:  # Ivy's exit status says nothing of what is not found.
        raise MissingError(f"no registry has all of {', '.join(jar.name for jar in jars)}")


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for found in (Path(spec.origin).parent / "jars").glob("ivy-*.jar"):
            return found
    raise MissingError("no PySpark, whose Ivy fetches jars; pip install pyspark")


def python_with(name: str, *packages: str) -> str:
    """The Python of a virtual environment that has these packages. Raises MissingError."""
    folder = CACHE / "python" / name
    ready, python = folder / "ready", folder / "bin/python"
    wanted = " ".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        _fetch(pip, folder / "pip.log", wanted)
        ready.write_text(wanted)
    return str(python)


def node_with(name: str, *packages: str) -> tuple[str, str]:
    """Node.js, and a folder of modules for NODE_PATH that has these packages. Raises MissingError."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingError("no Node.js; apt-get install nodejs npm")
    folder = CACHE / "node" / name
    ready = folder / "ready"
    wanted = " ".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
        _fetch(command, folder / "npm.log", wanted)
        ready.write_text(wanted)
    return node, str(folder / "node_modules")


def go_test(module: str, version: str, package: str) -> Path:
    """The tests of a Go package as a program. Raises MissingError."""
    return _go(module, version, package, "package judges\n", ["test", "-c"], package)


def go_sources(module: str, version: str) -> Path:
    """The folder of a Go module's sources, where its tests find their files."""
    go = shutil.which("go")
    assert go is not None
    folder = CACHE / "go" / f"{module.replace('/', '_')}@{version}"
    command = [go, "list", "-m", "-f", "{{.Dir}}", module]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def go_program(module: str, version: str, source: Path, package: str = "") -> Path:
    """A program of one file that needs a module. Raises MissingError."""
    return _go(module, version, package or module, source.read_text(), ["build"], ".")


def go_own_test(module: str, version: str, source: Path) -> Path:
    """Tests of one file, which need a module, as a program. Raises MissingError."""
    return _go(module, version, module, source.read_text(), ["test", "-c"], ".", source.name)


def _go(
    module: str,
    version: str,
    package: str,
    source: str,
    build: Sequence[str],
    what: str,
    name: str = "judges.go",
) -> Path:
    go = shutil.which("go")
    if go is None:
        raise MissingError("no Go; apt-get install golang")
    own = "" if name == "judges.go" else f"-{name}"
    folder = CACHE / "go" / f"{module.replace('/', '_')}@{version}{own}"
    program, file = folder / "judge.test", folder / name
    if not program.exists() or file.read_text() != source:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text("module judges\n")
        file.write_text(source)
        log = folder / "go.log"
        _fetch([go, "get", "-t", f"{package}@{version}"], log, f"{module} {version}", folder)
        command = [go, *build, "-o", str(program), what]
        _fetch(command, log, f"{module} {version} (it does not build)", folder)
    return program


def librdkafka_tests(version: str) -> Path:
    """The folder where librdkafka's own tests are built, out of the sources that this version of
    node-rdkafka brings along. Raises MissingError."""
    npm = shutil.which("npm")
    if missing := [it for it in ("npm", "cc", "c++", "make", "tar") if not shutil.which(it)]:
        raise MissingError(f"no {', '.join(missing)}; apt-get install npm build-essential")
    folder = CACHE / "librdkafka" / version
    sources = folder / "package/deps/librdkafka"
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log = folder / "build.log"
        package, what = f"node-rdkafka-{version}.tgz", f"librdkafka of node-rdkafka {version}"
        _fetch([str(npm), "pack", "--silent", f"node-rdkafka@{version}"], log, what, folder)
        _fetch(["tar", "xzf", package], log, what, folder)
        _fetch(["./configure"], log, f"{what} (configure)", sources)
        for part, target in (("src", "all"), ("src-cpp", "all"), ("tests", "build")):
            _fetch(["make", "-j2", "-C", part, target], log, f"{what} (make)", sources)
        ready.touch()
    return sources / "tests"


def debian(program: str, package: str) -> str:
    """A program of Debian's, installed if it is not there. Raises MissingError."""
    if not shutil.which(program):
        as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
        if not shutil.which("apt-get") or (as_root and not shutil.which("sudo")):
            raise MissingError(f"no {program}, and no apt-get to install it")
        log = CACHE / "apt.log"
        log.parent.mkdir(exist_ok=True)
        _fetch([*as_root, "apt-get", "update", "-qq"], log, "Debian's packages")
        _fetch([*as_root, "apt-get", "install", "-y", "-qq", package], log, package)
    found = shutil.which(program)
    assert found, f"{package} has no {program}"
    return found


def _fetch(command: Sequence[str], log: Path, what: str, folder: Path | None = None) -> None:
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=output, cwd=folder, timeout=_FETCH_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"{what} could not be fetched: {error}") from error
    if done.returncode != 0:
        raise MissingError(f"{what} could not be fetched; {log.relative_to(CACHE.parent)} says why")
