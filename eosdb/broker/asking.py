"""How a request is answered: `Broker.ask` looks up the method for its type, counts it, and logs damage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from eosdb.broker.handler import RequestHandler
from eosdb.errors import CorruptDatabaseError, CorruptRecordError, EosdbError
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import one_line
from eosdb.model.requests import Produce, Question, Request
from eosdb.model.threads import Fate

A = TypeVar("A")
P = ParamSpec("P")
STEPS: Final[dict[object, Callable[[Any, Any], Any]]] = {}
"""The method of `Broker` that answers each request, by the request's type."""


def answers(
    kind: Callable[P, Request[A]],
) -> Callable[[Callable[[Any, Any], A]], Callable[Concatenate[Any, P], A]]:
    """Decorator: the method answers the requests of this kind that `ask` is given. Called by its own
    name, it takes the request's fields as arguments, and asks."""

    def face_of(step: Callable[[Any, Any], A]) -> Callable[Concatenate[Any, P], A]:
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
        step: Callable[[Any, Request[A]], A] = STEPS[type(request)]
        if isinstance(request, Question):
            return step(self, request)
        metrics, name = self._core.metrics, request.name
        start = metrics.now_ns()
        try:
            return step(self, request)
        except EosdbError as error:
            metrics.error(error)
            if isinstance(error, (CorruptDatabaseError, CorruptRecordError)):
                self._tell_of_damage(error)
            raise
        finally:
            metrics.took(f"requests:{name}", f"request-time-ns:{name}", start)

    def turn(
        self, requests: Sequence[Request[Any]], *, sync: bool, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out the requests in order, in one unit: all of it, or nothing. Returns their answers.

        Raises the first error, also that of a batch. Each may be carried out more than once, and in another
        thread."""

        def whole(request: Request[Any]) -> Any:
            answer = self.ask(request)
            for result in answer.values() if isinstance(request, Produce) else ():
                if result.error is not None:
                    raise result.error
            return answer

        return self._coordinator.turn(
            lambda: [whole(request) for request in requests], sync=sync, fate=fate
        )

    def _tell_of_damage(self, error: EosdbError) -> None:
        """Log each damage once, although a consumer meets it again with each poll."""
        text = one_line(error)
        if text not in self._core.damage:
            self._core.damage.add(text)
            catalog.DAMAGE_FOUND.say(file=self._store.path, error=error)
