"""Plants the bugs named, or all of them, one after the other, and asks the tests that should find each.

`python -m tests.planted [NAME …]` works on a copy of the tree, and ends with 1 if a bug was not found. The
first test that found a bug is noted in `result.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.planted.planting import RESULT, bugs, copy_tree, results, try_one


def main(names: list[str]) -> int:
    known = bugs()
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"no such bugs: {', '.join(unknown)}; they are in tests/planted/*.toml")
    found = results()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder, "tree"))
        for name in names or known:
            answer = try_one(known[name], tree)
            if answer.status == 1:
                found[name] = answer.test
            else:
                missed.append(name)
            print(f"{name}: {answer}", flush=True)
    kept = {name: found[name] for name in sorted(found) if name in known and name not in missed}
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{len(names or known)} planted, {len(missed)} not found: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
