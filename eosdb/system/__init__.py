"""Services of the operating system: locks between processes, waiting for a write, open descriptors,
memory files, full syncs, mounts.

They have two implementations; `road.py` selects one for the process. Every package that needs
them imports this one first, so it also refuses unsupported systems.
"""

import sys

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"eosdb runs on Linux and macOS, and this is {sys.platform}, which lacks their locks between "
        "processes. Run it in a Linux container or virtual machine (Windows: WSL 2, or Docker), with the "
        "file on that machine's own disk"
    )
