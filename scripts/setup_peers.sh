#!/usr/bin/env bash
# Adds the group `bench` to .venv: what eosdb is measured beside. One that cannot be had here is left out of
# the benchmark, which says so.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(.venv/bin/python -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["dependency-groups"]["bench"]))
')
while read -r package; do
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$package" </dev/null ||
        echo "could not install $package: it will not take part in the benchmark" >&2
done <<<"$wanted"
touch .venv/.peers
