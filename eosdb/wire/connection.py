"""One connection: frames in, answers out, one at a time and in their order, as Kafka does it."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata.api_versions import ApiVersionsResponse

from eosdb.wire import messages
from eosdb.wire.apis import APIS
from eosdb.wire.messages import MalformedMessageError, RequestHeader
from eosdb.wire.session import Session

_log = logging.getLogger("eosdb.wire")
_SIZE: Final = struct.Struct(">i")
_LARGEST_FRAME: Final = 104_857_600
"""Kafka's socket.request.max.bytes."""
_UNSUPPORTED_VERSION: Final = 35
_RESET: Final = struct.pack("ii", 1, 0)

CarryOut = Callable[[Session], ApiMessage | None]
Interfere = Callable[[str, Session, CarryOut], ApiMessage | None]
"""Stands between a request and its handler, for tests: gets the API's name, the session, and what carries
the request out; its result is the answer, and its OSError breaks the connection."""


class Connection:
    """Serves one client until it goes, or until `close`. `serve` runs in a thread of its own."""

    def __init__(
        self, sock: socket.socket, session: Session, interfere: Interfere | None = None
    ) -> None:
        self._socket = sock
        self._session = session
        self._interfere = interfere
        self._is_closing = False

    def serve(self) -> None:
        """Answer requests until the connection ends, for whatever reason; never raises."""
        peer = self._session.client_host
        try:
            while not self._is_closing and (frame := self._read_frame()) is not None:
                answer = self._answer(frame)
                if answer is not None:
                    self._socket.sendall(answer)
        except MalformedMessageError as error:
            _log.warning("closed the connection from %s: %s", peer, error)
        except OSError as error:
            _log.debug("the connection from %s broke: %s", peer, error)
        except Exception:
            _log.exception("closed the connection from %s: a request failed", peer)
        finally:
            self._socket.close()

    def close(self) -> None:
        """End it after the request that is being answered."""
        self._is_closing = True
        with contextlib.suppress(OSError):  # It may have ended by itself.
            self._socket.shutdown(socket.SHUT_RD)

    def abandon(self) -> None:
        """Break it at once, as the end of a process does; what is being answered never arrives."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read_frame(self) -> bytearray | None:
        """The next request; None when the client has gone."""
        size_bytes = self._read(_SIZE.size)
        if size_bytes is None:
            return None
        (size,) = _SIZE.unpack(size_bytes)
        if not 0 <= size <= _LARGEST_FRAME:
            raise MalformedMessageError(
                f"a frame of {size} bytes, at most {_LARGEST_FRAME} are read"
            )
        return self._read(size)

    def _read(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            received = self._socket.recv_into(view[done:])
            if received == 0:
                return None
            done += received
        return data

    def _answer(self, frame: bytearray) -> bytes | None:
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
        request = messages.decode_body(api.request, header, frame)
        self._session.client_id = header.client_id
        if self._interfere is None:
            response = api.handle(self._session, request, header.version)
        else:
            response = self._interfere(
                api.name,
                self._session,
                lambda session: api.handle(session, request, header.version),
            )
        return None if response is None else messages.encode(response, header)


def _versions_for_newer_client(header: RequestHeader) -> bytes:
    """A client that asks in a later version is told so in the first one, and asks again (KIP-511)."""
    api = APIS[messages.API_VERSIONS]
    version = ApiVersionsResponse.ApiVersion(
        api_key=api.key, min_version=api.lowest, max_version=api.highest
    )
    response = ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=[version])
    oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id, 0)
    return messages.encode(response, oldest)
