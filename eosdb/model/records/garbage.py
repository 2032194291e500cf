"""Python's cyclic garbage collector, suspended while many objects are made that are all kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend the collector for the block, which should be short and call no user code.

    The collector runs whenever enough containers have been allocated: for a list of 10,000 records about
    fifteen times over the list, and now and then over all objects of the process, and finds nothing. That
    takes a third of the time of reading, or more. After the block it runs once. A collector that is already
    off, or suspended by another thread, is left alone.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
