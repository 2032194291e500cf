"""python -m tests.trials.judges [NAME …]: asks the judges, prints the table. `--list` tells their names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.trials.judges.case import ask
from tests.trials.judges.panel import JUDGES
from tests.trials.judges.verdicts import exit_status, table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.judges", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that begin so; none: all")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    options = parser.parse_args(arguments)
    wanted = [
        judge
        for judge in JUDGES
        if not options.names or judge.name.startswith(tuple(options.names))
    ]
    if not wanted:
        parser.error(f"no judge begins so; there are {', '.join(it.name for it in JUDGES)}")
    if options.list:
        print("\n".join(judge.name for judge in wanted))
        return 0
    verdicts = []
    for judge in wanted:
        print(f"{judge.name} {judge.version} …", file=sys.stderr, flush=True)
        verdict = ask(judge)
        verdicts.append(verdict)
        print(f"  {verdict.outcome.value}: {verdict.text}", file=sys.stderr, flush=True)
    print(table(verdicts))
    return exit_status(verdicts)


if __name__ == "__main__":
    sys.exit(main())
