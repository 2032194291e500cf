"""A program for `portable.py`: finds the holder of SQLite's POSIX locks, given a path and bytes.

The kernel shows a process every such lock but its own, and closing the file would drop the process's own
locks. So another process asks.
"""

import fcntl
import os
import struct
import sys


def holder(descriptor: int, byte: int) -> int:
    """The process that has locked the byte; 0 if none has."""
    if sys.platform == "darwin":
        wanted = struct.pack("qqihh", byte, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
        _, _, pid, kind, _ = struct.unpack("qqihh", answer)
    else:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", answer)
    return 0 if kind == fcntl.F_UNLCK else max(int(pid), 0)


if __name__ == "__main__":
    file = os.open(sys.argv[1], os.O_RDONLY)
    sys.stdout.write(" ".join(str(holder(file, int(byte))) for byte in sys.argv[2:]))
