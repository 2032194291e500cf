"""Services of the operating system: locks between processes, notifications of writes, open descriptors,
folders in memory, full syncs, mounts.

They have two implementations; `road.py` selects one for the process. Importing this package raises
ImportError on unsupported systems.
"""

import sys

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"eosdb runs on Linux and macOS, and this is {sys.platform}, which lacks the locks that it needs. "
        "Run it in a Linux container or virtual machine (Windows: WSL 2, or Docker), with the file on that "
        "machine's own disk"
    )
