"""What the operating system gives, in one place: locks between processes, waiting for a write, descriptors
that are open, memory files, full syncs, mounts.

There are two roads to it, of which `road.py` takes one for the life of the process. This package is
imported before anything that needs it, so it also refuses systems that eosdb does not run on.
"""

import sys

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"eosdb runs on Linux and macOS, and this is {sys.platform}, which lacks their locks between "
        "processes. Run it in a Linux container or virtual machine (Windows: WSL 2, or Docker), with the "
        "file on that machine's own disk"
    )
