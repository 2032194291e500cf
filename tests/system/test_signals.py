"""A signal stops what waits or works at whatever instant it comes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb.system.signals import Stop, stopped_by_signals
from tests.chaos.interrupting import Interrupt


class At(Interrupt):
    """Calls a function at the n-th place where Python runs signal handlers."""

    def __init__(self, at: int, handler: Callable[[], object]) -> None:
        super().__init__(at)
        self._handler = handler

    def _pass(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.reached = True
            self._handler()


def test_a_signal_that_python_does_not_notice_in_time_ends_the_wait() -> None:
    """One to another thread is none to the system call in which the main thread waits."""
    stop = Stop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with stopped_by_signals(stop.request):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            other = threading.Thread(target=_take_the_signal)
            other.start()
            stop.wait()
            other.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_the_signal() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    main = threading.main_thread().ident
    assert main is not None
    while sys._current_frames()[main].f_code is not Stop.wait.__code__:
        time.sleep(0.001)
    for _ in range(100):  # Until it has left Python, for which it needs the interpreter once more.
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
def test_a_handler_may_wake_a_consumer_at_any_place_of_a_poll(db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        consumer = db.consumer("g")
        consumer.assign([eosdb.TopicPartition("t", 0)])
        consumer.poll()
        number, is_reached = 0, True
        while is_reached:
            consumer.wakeup()
            place = At(number, consumer.wakeup)
            with contextlib.suppress(eosdb.WakeupError):
                place.run(consumer.poll)
            with contextlib.suppress(eosdb.WakeupError):
                consumer.poll()
            number, is_reached = number + 1, place.reached
        assert number > 20


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_the_program_ignores_stays_ignored(ignored: signal.Signals) -> None:
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        stop = Stop()
        with stopped_by_signals(stop.request):
            signal.raise_signal(ignored)
            assert stop._requests.empty()
            signal.raise_signal(signal.SIGTERM)
            stop.wait()
        assert signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        signal.signal(ignored, before)
