"""CPU seconds (user + system) of a command's start, best of rounds: `python -m benchmarks.cli_start 10`.

Bytecode is cached, as it is where pip installed eosdb. The first row is Python itself.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "Python itself": ("-c", "pass"),
    "import eosdb": ("-c", "import eosdb"),
    "import eosdb; eosdb.connect": ("-c", "import eosdb; eosdb.connect"),
    **{
        f"eosdb {' '.join(words)}": ("-m", "eosdb.cli", *words)
        for words in (
            ("--help",),
            ("--version",),
            ("produce", "--help"),
            ("topics", "list"),
            ("consume", "lines", "--from-beginning"),
        )
    },
}


def cpu_s(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": folder,
            "EOSDB_DB": str(Path(folder, "start.db")),
        }
        for words in (("init",), ("topics", "create", "lines")):
            cpu_s(("-m", "eosdb.cli", *words), environment)
        print("| command | CPU s |\n|---|---|")
        for name, arguments in COMMANDS.items():
            best = min(cpu_s(arguments, environment) for _ in range(rounds))
            print(f"| {name} | {best:.3f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
