"""What the operating system gives, in one place: locks between processes, waiting for a write, descriptors
that are open, memory files, full syncs, mounts.

This package is imported before anything that needs it, so it also refuses systems that eosdb does not run
on.
"""

import sys

if sys.platform != "linux":
    raise ImportError(
        f"eosdb runs on Linux, and this is {sys.platform}: its locks between processes, and what it reads "
        "from /proc, exist only there. Run it in a Linux container or virtual machine (Docker, WSL 2), "
        "with the file on that machine's own disk"
    )
