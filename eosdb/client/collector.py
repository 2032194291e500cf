"""Python's cyclic garbage collector, held off while a long list is made.

It starts whenever enough containers have been allocated, and a list of 10,000 records is reason enough to
go through them some fifteen times, and through everything else in the process now and then, to find
nothing: a third of what reading costs, or more. Held off, it does its work once, when the list is done.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_off() -> Iterator[None]:
    """No collection inside the block, for code that ends soon and calls nothing of the user's.

    Whoever has switched the collector off, or holds it off in another thread, is left alone.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
