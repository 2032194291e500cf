"""One connection: requests are answered one at a time, in their order, as Kafka does."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

from kafka.protocol.api_message import ApiMessage

from eosdb.errors import EosdbError
from eosdb.model.notices import catalog
from eosdb.wire import messages
from eosdb.wire.apis import Api
from eosdb.wire.errors import UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, RefusedByFileError
from eosdb.wire.fetch_answer import Pieces
from eosdb.wire.frames import Frames
from eosdb.wire.handlers import APIS
from eosdb.wire.limits import Lease, Limits
from eosdb.wire.messages import MalformedMessageError, RequestHeader, Response
from eosdb.wire.security import shake_hands, shut_down
from eosdb.wire.session import Session

_RESET: Final = struct.pack("ii", 1, 0)

CarryOut = Callable[[Session], Response | None]
Interfere = Callable[[str, Session, CarryOut], Response | None]
"""A test's hook around a handler: it gets the API's name, the session and a function that runs the handler.
It returns the response; if it raises OSError, the connection breaks."""


class Connection:
    """Serves one client until it disconnects or `close` is called. `serve` runs in a thread of its own."""

    def __init__(
        self,
        sock: socket.socket,
        session: Session,
        limits: Limits,
        lease: Lease,
        interfere: Interfere | None = None,
        on_known: Callable[[Connection], object] = lambda connection: None,
    ) -> None:
        """`on_known` is called once, when the client is no stranger any more."""
        self._on_known = on_known
        self._is_known = False
        self._socket = sock
        self._session = session
        self._limits: Final = limits
        self._frames = Frames(sock, limits, lease)
        self._interfere = interfere
        self._is_closing = False

    def serve(self) -> None:
        """Answer requests until the connection ends for any reason; never raises."""
        peer = self._session.client_host
        catalog.CONNECTED.say(client_host=peer)
        try:
            asked_for = shake_hands(self._socket, max(self._frames.patience_s, 0.001))
            if asked_for and not self._session.is_advertised:
                self._session.host = asked_for
            while not self._is_closing:
                frame = self._frames.read(self._largest_frame)
                if frame is None:
                    catalog.DISCONNECTED.say(client_host=peer)
                    return
                answer = self._answer(frame)
                self._know_if_logged_in()
                del frame  # The answer may wait for its client for long.
                if answer is not None:
                    self._frames.write(answer)
                if self._session.login.is_refused:
                    return
        except (MalformedMessageError, TimeoutError, EosdbError) as error:
            catalog.CONNECTION_CLOSED.say(client_host=peer, error=error)
        except RefusedByFileError as error:
            catalog.REFUSED_BY_FILE.say(client_host=peer, cause=error, error=error.__cause__)
        except OSError as error:
            catalog.CONNECTION_BROKE.say(client_host=peer, error=error)
        except Exception as error:
            catalog.CONNECTION_FAILED.say(client_host=peer, trace=error)
        finally:
            self._frames.lease.release()
            self._socket.close()

    def close(self) -> None:
        """Close the connection after the request being handled."""
        self._is_closing = True
        self._session.login.ended.set()
        with contextlib.suppress(OSError):  # It may have ended by itself.
            shut_down(self._socket, socket.SHUT_RD)

    def abort(self) -> None:
        """Reset the connection at once, as if the process had died; the response being prepared is never
        sent."""
        self._is_closing = True
        self._session.login.ended.set()
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            shut_down(self._socket, socket.SHUT_RDWR)

    def forget(self) -> None:
        """In a forked child, close this copy of the socket; the connection stays open in the parent."""
        self._socket.close()

    @property
    def _largest_frame(self) -> int:
        if self._session.login.is_due:
            return self._limits.frame_bytes_before_login
        return self._limits.frame_bytes

    def _answer(self, frame: bytearray) -> Pieces | None:
        if self._session.login.takes_tokens:
            return messages.framed(self._session.step(bytes(frame)))
        header = messages.decode_header(frame)
        api = APIS.get(header.api_key)
        if api is None:
            raise MalformedMessageError(f"API {header.api_key} is not served")
        if not api.lowest <= header.version <= api.highest:
            if header.api_key == messages.API_VERSIONS:
                return _versions_for_newer_client(header)
            raise MalformedMessageError(
                f"{api.name} version {header.version} is not served, {api.lowest} to {api.highest} are"
            )
        self._session.login.check_may_ask(header.api_key, api.name)
        request = messages.decode_body(api.request, header, frame)
        self._know_if_logged_in()  # Before the request, which may wait for long.
        self._session.client_id = header.client_id
        try:
            response = self._carry_out(api, request, header.version)
            return None if response is None else messages.encode(response, header)
        except (MalformedMessageError, OSError, EosdbError, RefusedByFileError):
            raise
        except MemoryError as error:
            raise RefusedByFileError("there is not enough memory") from error
        except Exception as error:
            return self._failed(api, header, error)

    def _know_if_logged_in(self) -> None:
        if not self._is_known and not self._session.login.is_due:
            self._is_known = True
            self._frames.knows_its_client()
            self._on_known(self)

    def _carry_out(self, api: Api, request: ApiMessage, version: int) -> Response | None:
        if self._interfere is None:
            return api.answer(self._session, request, version)
        return self._interfere(
            api.name, self._session, lambda session: api.answer(session, request, version)
        )

    def _failed(self, api: Api, header: RequestHeader, error: Exception) -> Pieces:
        """Respond to a mistake of ours with an error code, if the response has one; otherwise raise it,
        which ends the connection."""
        if not api.has_code(header.version):
            raise error
        catalog.REQUEST_FAILED.say(
            api=api.name, api_version=header.version, error=error, trace=error
        )
        answer = api.message({"error_code": UNKNOWN_SERVER_ERROR}, header.version)
        return messages.encode(answer, header)


def _versions_for_newer_client(header: RequestHeader) -> Pieces:
    """Answer ApiVersions of an unsupported version in version 0, with UNSUPPORTED_VERSION; the client then
    retries (KIP-511)."""
    api = APIS[messages.API_VERSIONS]
    version = {"api_key": api.key, "min_version": api.lowest, "max_version": api.highest}
    response = api.message({"error_code": UNSUPPORTED_VERSION, "api_keys": [version]}, 0)
    oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id, 0)
    return messages.encode(response, oldest)
