"""How an API is served: its versions, its right, its handler, and how its errors are told.

Each file of `eosdb.wire.handlers` registers its API here. The versions are those of Kafka 4.1, as far as
eosdb implements everything they ask for (docs/wire.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from eosdb.errors import EosdbError
from eosdb.wire import answers, borrowed
from eosdb.wire.answers import CodeOf, Fields
from eosdb.wire.errors import code_of
from eosdb.wire.fetch_answer import FetchAnswer
from eosdb.wire.messages import Response
from eosdb.wire.session import Session

Handler = Callable[[Session, Any, int], Fields | FetchAnswer | None]
"""Returns the answer to a request of a version, or None if none is sent (acks=0). An EosdbError that it
raises is answered, too."""
Failed = Callable[[Any, EosdbError, int], Fields]
Codes = Mapping[range, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Api:
    """An API of Kafka's protocol, as it is served."""

    request: type[ApiMessage]
    lowest: int
    highest: int
    handle: Handler
    code_of: CodeOf
    codes: Codes
    right: str | None
    failed: Failed | None

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def key(self) -> int:
        return int(self.request.API_KEY)

    def has_code(self, version: int) -> bool:
        """Whether a response of this version can be an error code and nothing else."""
        place = borrowed.response_of(self.key).fields.get("error_code")
        return place is not None and bool(place.for_version_q(version))

    def answer(self, session: Session, request: ApiMessage, version: int) -> Response | None:
        """Carry out a request. Raises EosdbError where the response has no place for an error."""
        answer: Fields | FetchAnswer | None
        try:
            if self.right is not None:
                session.check(self.right)
            answer = self.handle(session, request, version)
        except EosdbError as error:
            if self.failed is not None:
                answer = self.failed(request, error, version)
            elif self.has_code(version):
                answer = {"error": error}
            else:
                raise
        return self.message(answer, version) if isinstance(answer, dict) else answer

    def message(self, answer: Fields, version: int) -> ApiMessage:
        """The response with these fields. Raises RefusedByFileError."""
        kind = borrowed.response_of(self.key)
        made: ApiMessage = answers.message(kind, answer, lambda error: self._code(error, version))
        return made

    def _code(self, error: EosdbError, version: int) -> int:
        code = self.code_of(error)
        for versions, instead in self.codes.items():
            if version in versions:
                code = instead.get(code, code)
        return code


SERVED: Final[dict[int, Api]] = {}
"""By key; complete once `eosdb.wire.handlers` has been imported."""


def serves(
    request: type[ApiMessage],
    lowest: int,
    highest: int,
    code_of: CodeOf = code_of,
    *,
    codes: Codes | None = None,
    right: str | None = None,
    failed: Failed | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated handler for these versions of an API.

    `code_of` gives the code of an error, and `codes` another for versions that do not know it. `right` is
    the operation on the cluster that every request needs; the broker checks all other rights. `failed`
    answers a request that fails as a whole, where an error code alone does not say so.
    """

    def register(handle: Handler) -> Handler:
        api = Api(request, lowest, highest, handle, code_of, codes or {}, right, failed)
        SERVED[api.key] = api
        return handle

    return register
