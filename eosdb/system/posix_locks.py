"""A program for `portable.py`: prints the holders of SQLite's POSIX locks on bytes of a file.

The kernel does not show a process its own locks, and closing the file would drop them. So a second process
asks the kernel.
"""

import fcntl
import os
import struct
import sys


def holder(descriptor: int, byte: int) -> int:
    """Return the id of the process that has locked the byte; 0 if none has."""
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
