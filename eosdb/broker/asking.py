"""Answers requests: `Broker.ask` looks up the method for the request's type, counts it, and logs damage.

A method that only reads answers. One that writes prepares a `Write`, before any lock is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from eosdb.broker.handler import RequestHandler
from eosdb.errors import CorruptDatabaseError, CorruptRecordError, EosdbError
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import one_line
from eosdb.model.requests import Question, Request
from eosdb.model.threads import Fate
from eosdb.store.writing.unit import Unit

A = TypeVar("A")
P = ParamSpec("P")
STEPS: Final[dict[object, Callable[[Any, Any], Any]]] = {}
"""The method of `Broker` that answers each request or prepares it, by the request's type."""


@dataclass(frozen=True, slots=True)
class Write(Generic[A]):
    """A request after its checks and encoding: only its unit is left."""

    apply: Callable[[Unit], A]
    """Carries it out in a unit: all of it, or raises. May run more than once, and in another thread."""
    sync: bool = True
    alone: Callable[[], A] | None = None
    """Carries it out in units of its own, if one may not suffice; None: `apply` in one."""
    then: Callable[[A], None] | None = None


def answers(
    kind: Callable[P, Request[A]],
) -> Callable[[Callable[[Any, Any], A | Write[A]]], Callable[Concatenate[Any, P], A]]:
    """Decorator of the method that answers or prepares this kind of request. A direct call of the method
    takes the request's fields as arguments, and asks."""

    def face_of(step: Callable[[Any, Any], A | Write[A]]) -> Callable[Concatenate[Any, P], A]:
        STEPS[kind] = step

        def face(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> A:
            answer: A = self.ask(kind(*args, **kwargs))
            return answer

        face.__name__, face.__qualname__, face.__module__ = (
            step.__name__, step.__qualname__, step.__module__,
        )  # fmt: skip
        face.__doc__ = kind.__doc__
        me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        fields = inspect.signature(kind).parameters.values()
        face.__signature__ = inspect.Signature([me, *fields])  # type: ignore[attr-defined]
        return face

    return face_of


class Answering(RequestHandler):
    """The base class of the parts of `Broker`."""

    def ask(self, request: Request[A]) -> A:
        """Carry out a request of `eosdb.model.requests`, and return its answer."""
        step: Callable[[Any, Request[A]], Any] = STEPS[type(request)]
        if isinstance(request, Question):
            answer: A = step(self, request)
            return answer
        metrics, name = self._core.metrics, request.name
        start = metrics.now_ns()
        try:
            answer = step(self, request)
            if not isinstance(answer, Write):
                return answer
            write: Write[A] = answer
            if write.alone is not None:
                answer = write.alone()
            else:
                answer = self._coordinator.write(write.apply, sync=write.sync)
            if write.then is not None:
                write.then(answer)
            return answer
        except EosdbError as error:
            self._failed(error)
            raise
        finally:
            metrics.took(f"requests:{name}", f"request-time-ns:{name}", start)

    def _not_synced(self, apply: Callable[[Unit], A]) -> Write[A]:
        """A write of the coordinator that counts only with a later, synced one, or may be lost at a power
        loss."""
        self._coordinator.leadership.ensure_elected()
        return Write(apply, sync=False)

    # decisions/0079: like any other write, so that threads share its commit.
    def turn(
        self, requests: Sequence[Request[Any]], *, sync: bool, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out requests that write, in order and in one unit: all of it, or nothing. Returns the
        answers. All are prepared before any lock is taken.

        Raises the first error, also that of a batch; then make each request by itself, for its own
        answer.
        """
        metrics = self._core.metrics
        start = metrics.now_ns()
        try:
            writes: list[Write[Any]] = [STEPS[type(request)](self, request) for request in requests]
            answers = self._coordinator.write(
                lambda unit: [write.apply(unit) for write in writes], sync=sync, fate=fate
            )
        except EosdbError as error:
            self._failed(error)
            raise
        finally:
            for request in requests:
                metrics.took(f"requests:{request.name}", f"request-time-ns:{request.name}", start)
        for write, answer in zip(writes, answers, strict=True):
            if write.then is not None:
                write.then(answer)
        return answers

    def _failed(self, error: EosdbError) -> None:
        self._core.metrics.error(error)
        if isinstance(error, (CorruptDatabaseError, CorruptRecordError)):
            self._tell_of_damage(error)

    def _tell_of_damage(self, error: EosdbError) -> None:
        """Log each damage once, although a consumer meets it again with each poll."""
        text = one_line(error)
        if text not in self._core.damage:
            self._core.damage.add(text)
            catalog.DAMAGE_FOUND.say(file=self._store.path, error=error)
