#!/usr/bin/env bash
# Makes .venv with eosdb (editable) and everything its tests and demo need. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

python=""
for candidate in python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] || ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "installing Python with venv by apt-get"
    as_root apt-get update -qq
    as_root apt-get install -y -qq python3 python3-venv
    python=${python:-python3}
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "eosdb needs Python 3.11 or newer, found $("$python" --version)" >&2
    exit 1
}

# Spark needs Java, and its JDBC reader the SQLite driver, as the reader of tests/format; Java's clients of the wire,
# a compiler. Without them the tests of Spark and Java say that they skip.
# The tests of power cuts compile the library that watches a program's writes; those of the page drive a browser.
# The accelerator (eosdb/native) is built with the compiler and Python's headers.
jar=${EOSDB_SQLITE_JDBC_JAR:-/usr/share/java/xerial-sqlite-jdbc.jar}
missing=()
command -v javac >/dev/null || missing+=(default-jdk-headless)
[ -f "$jar" ] || missing+=(libxerial-sqlite-jdbc-java libxerial-sqlite-jdbc-jni)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$include/Python.h" ] || missing+=(python3-dev)
command -v chromium >/dev/null || missing+=(chromium)
if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]} by apt-get"
    { as_root apt-get update -qq && as_root apt-get install -y -qq "${missing[@]}" >/dev/null; } ||
        echo "could not install ${missing[*]}: what needs them (Spark, its JDBC reader, tests/format, tests/chaos, tests/integrations/ui, the accelerator) will not work here" >&2
fi

echo "setting up .venv; the first time this takes some minutes, and 2.2 GB"
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install 'pip>=25.1' # The first that knows --group.
# Without a box of setuptools' about editable installations.
PYTHONWARNINGS="ignore:Editable installation" "${pip[@]}" install -e . --group dev
# Programs start faster; where PYTHONDONTWRITEBYTECODE is set, nobody else would do it.
.venv/bin/python -m compileall -q cli eosdb migrations spark_io
# So do pytest's workers, each of which would otherwise rewrite the asserts of all tests.
env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest --collect-only -q >/dev/null &
# So does Spark with an archive of its classes (tests/spark/small.py).
! command -v java >/dev/null || .venv/bin/python -m tests.spark.small || true
wait
touch .venv/.ready
