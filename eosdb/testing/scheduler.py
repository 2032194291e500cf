"""Runs many actors, one at a time, in an order that a seed determines.

An actor is ordinary blocking code in its own thread. It runs until it sends a request or sleeps; then the
scheduler chooses the next actor. Only one thread runs at a time, so the same seed gives the same history.
Time advances only when all actors sleep.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Final

from eosdb.model.clock import ManualClock

_STUCK_S: Final = 120


class ActorKilled(BaseException):
    """Unwinds the code of a killed actor. Nothing that the code does afterwards has any effect."""


class NodeCrashed(BaseException):
    """The process died in the middle of carrying out a request."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} crashed")
        self.node = node


class Actor:
    """A blocking program among several."""

    def __init__(
        self, scheduler: Scheduler, name: str, node: int, body: Callable[[], object]
    ) -> None:
        self.name = name
        self.node = node
        self.wake_ms = 0
        """The time until which the actor sleeps."""
        self.suspended_until = 0
        """The step before which the actor gets no turn."""
        self.error: BaseException | None = None
        self.finished = False
        self.killed = False
        self._scheduler = scheduler
        self._body = body
        self._go = threading.Semaphore(0)
        # decisions/0008: an actor has a thread, because it runs users' code; only one actor runs at a time.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let the actor run until its next pause, or its end."""
        self._go.release()
        if not self._scheduler.turn.acquire(timeout=_STUCK_S):
            raise RuntimeError(f"{self.name} neither pauses nor ends")

    def pause(self) -> None:
        """Let others run, and wait for the next turn. Called by the actor."""
        if self.killed:
            raise ActorKilled
        self._scheduler.turn.release()
        self._go.acquire()
        if self.killed:
            raise ActorKilled

    def kill(self) -> None:
        """Kill the actor. The cleanup that its code still does has no effect."""
        self.killed = True
        if not self.finished:
            self.resume()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.killed:
                self._body()
        except ActorKilled:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished = True
            self._scheduler.turn.release()


class Scheduler:
    def __init__(self, rng: random.Random, clock: SimulatedClock) -> None:
        self._rng = rng
        self._clock = clock
        self.turn = threading.Semaphore(0)
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.steps = 0
        self.ended: Callable[[Actor], None] = lambda actor: None
        """Called for every actor that has ended or was killed."""
        clock.scheduler = self

    def spawn(self, name: str, node: int, body: Callable[[], object]) -> Actor:
        actor = Actor(self, name, node, body)
        self.actors.append(actor)
        return actor

    def step(self) -> Actor | None:
        """Give one actor a turn; advances the clock if all actors sleep. None if no actor is left."""
        self.steps += 1
        awake = self._awake()
        if not awake:
            able = [a for a in self.actors if a.suspended_until <= self.steps]
            if not able:
                able = self.actors
                for actor in able:
                    actor.suspended_until = 0
            if not able:
                return None
            earliest = min(actor.wake_ms for actor in able)
            self._clock.advance(max(0, earliest - self._clock.monotonic_ms()))
            awake = self._awake()
        actor = awake[self._rng.randrange(len(awake))]
        self.current = actor
        actor.resume()
        self.current = None
        if actor.finished:
            self.actors.remove(actor)
            self.ended(actor)
        return actor

    def pause(self, ms: int = 0) -> None:
        """Let other actors run for at least `ms`. Called by the running actor."""
        actor = self.current
        if actor is None:
            self._clock.advance(ms)
            return
        actor.wake_ms = self._clock.monotonic_ms() + ms
        actor.pause()

    def kill(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors.remove(actor)
        before, self.current = self.current, actor
        actor.kill()
        self.current = before
        self.ended(actor)

    def kill_all(self) -> None:
        for actor in list(self.actors):
            self.kill(actor)

    def _awake(self) -> list[Actor]:
        now = self._clock.monotonic_ms()
        return [a for a in self.actors if a.wake_ms <= now and a.suspended_until <= self.steps]


class SimulatedClock(ManualClock):
    """A clock on which sleeping lets other actors run."""

    def __init__(self, start_ms: int) -> None:
        super().__init__(start_ms)
        self.scheduler: Scheduler | None = None

    def sleep_ms(self, ms: int) -> None:
        if self.scheduler is None:
            super().sleep_ms(ms)
        else:
            self.scheduler.pause(max(ms, 0))
