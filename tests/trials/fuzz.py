"""The long hunt: `python -m tests.trials.fuzz MINUTES [FIRST_SEED]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final

from eosdb.wire.parking import REAL_TIME
from tests.wire.fuzz.hunt import FoundSomething, Hunt
from tests.wire.fuzz.recording import record
from tests.wire.fuzz.target import Target

_FRAMES_PER_SEED: Final = 500


def main(minutes: float, seed: int) -> int:
    deadline = REAL_TIME.monotonic_ms() + minutes * 60_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorded = record(folder)
        print(f"{len(recorded)} recorded frames", flush=True)
        with Target(folder) as target, Hunt(target, recorded) as hunt:
            while REAL_TIME.monotonic_ms() < deadline:
                random = Random(seed)
                try:
                    for _ in range(_FRAMES_PER_SEED):
                        hunt.one(random)
                except FoundSomething as found:
                    print(f"seed {seed}, frame {hunt.sent}: {found}")
                    return 1
                seed += 1
            grown = (target.resident_bytes() - target.first_bytes) // 1_000_000
            code = target.end()
            print(
                f"{hunt.sent} frames, {hunt.answered} answered, the next seed is {seed}; memory grew by "
                f"{grown} MB; the file is {'in order' if code == 0 else 'NOT in order'}"
            )
            if code:
                print(target.log()[-4_000:].decode())
            return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
