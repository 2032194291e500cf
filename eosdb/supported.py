"""Which systems eosdb runs on: imported before what exists only there, and says so elsewhere."""

from __future__ import annotations

import sys

# The writer mutex is made of open-file-description locks.
if sys.platform != "linux":
    raise ImportError(
        f"eosdb runs on Linux, and this is {sys.platform}: its locks between processes, and what it reads "
        "from /proc, exist only there. Run it in a Linux container or virtual machine (Docker, WSL 2), "
        "with the file on that machine's own disk"
    )
