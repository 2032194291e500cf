"""Ctrl-C at any instant: KeyboardInterrupt raised at the n-th place where CPython looks for signals, or
another error, such as MemoryError.

It looks when a Python function begins, behind a call, and where a loop begins its next round. A trace
function counts those places in the thread that calls, in whatever code it runs, and raises at one.
"""

from __future__ import annotations

import dis
import gc
import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

_OWN = __file__


class Interrupt:
    """`run` calls a function and interrupts it once; `reached` tells whether it came that far. In what
    modules of these names do, it is not interrupted."""

    def __init__(
        self, at: int, error: type[BaseException] = KeyboardInterrupt, spared: tuple[str, ...] = ()
    ) -> None:
        self._left = self._at = at
        self._error = error
        self._spared = spared
        self.reached = False

    def run(self, function: Callable[[], object]) -> None:
        """Raises KeyboardInterrupt, unless the function swallows it or is over before.

        The collector rests meanwhile: CPython 3.11 also mixes up its stack when a trace function raises in
        a finalizer that the collector calls.
        """
        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._trace)
        try:
            function()
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Of calls."""
        code = frame.f_code
        if self.reached or code.co_filename == _OWN or code.co_filename.endswith(self._spared):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        # CPython 3.11 mixes up its stack when a trace function raises where a generator goes on.
        if not code.co_flags & inspect.CO_GENERATOR:
            self._pass()
        places = _places(code)

        def within(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
            """As short as it can be: it is called for every instruction. Nor does it hold itself, which
            would be a cycle for each call that the collector has to find, amid what is tried."""
            if event == "opcode" and frame.f_lasti in places and not self.reached:
                self._pass()
            return frame.f_trace

        return within

    def _pass(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.reached = True
            raise self._error

    @property
    def passed(self) -> int:
        """How many places it has come by."""
        return self._at - self._left


@cache
def _places(code: CodeType) -> frozenset[int]:
    """Where an instruction stands behind which, or at whose beginning, signals are looked for.

    Behind a call CPython looks while it is still at the call, so a place where the handler of the call's
    errors is left, as at the end of `with`, is none.
    """
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    found, before = set(), None
    for instruction in dis.get_instructions(code):
        if before is not None and before.opname.startswith("CALL"):
            left = (e for e in entries if e.start <= before.offset < e.end <= instruction.offset)
            if not any(left):
                found.add(instruction.offset)
        if instruction.opname == "JUMP_BACKWARD":
            found.add(int(instruction.argval))
        if instruction.opname != "CACHE":
            before = instruction
    return frozenset(found)
