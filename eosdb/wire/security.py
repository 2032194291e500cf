"""The security of a server: TLS, client certificates, user names and passwords.

A server on a loopback address may be open. Any other address requires authentication and encryption
(decisions/0030).
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eosdb.errors import ConfigError
from eosdb.model.config import check_switch
from eosdb.model.notices import catalog
from eosdb.model.validation import check_path
from eosdb.wire.listening import is_loopback


class SecureSocket(ssl.SSLSocket):
    """A TLS connection that remembers the server name that its client requested (SNI)."""

    asked_for: str | None = None


class Certificates:
    """The PEM files of a server, and their TLS context, which is renewed whenever a file changes."""

    def __init__(self, cert: str, key: str, ca: str | None) -> None:
        """Read the files. Raises ConfigError."""
        self._files: Final = cert, key, ca
        self._state = self._state_of_files()
        self._context = _context(*self._files)

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. If a changed file is not valid, the context stays the old one,
        which is logged once for each change."""
        state = self._state_of_files()
        if state != self._state:
            self._state = state  # Set first, so a change during the read causes another read.
            try:
                self._context = _context(*self._files)
            except ConfigError as error:
                catalog.CERTIFICATE_KEPT.say(error=error)
            else:
                catalog.CERTIFICATE_RENEWED.say(file=self._files[0])
        return self._context

    def _state_of_files(self) -> list[tuple[int, ...] | None]:
        return [_state(path) for path in self._files if path is not None]


def _state(path: str) -> tuple[int, ...] | None:
    """A fingerprint of a file: it changes when the file, or a link to it, is replaced or written."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Security:
    """The security of a server; without TLS if `tls` is None."""

    tls: Certificates | None = None
    is_sasl_required: bool = False

    def check(self, addresses: Iterable[str]) -> None:
        """Raises ConfigError unless the server may listen at these addresses."""
        outside = [address for address in addresses if not is_loopback(address)]
        if outside and not (self.tls and self.is_sasl_required):
            raise ConfigError(
                f"{', '.join(outside)}: other machines reach this address, so TLS and a login are "
                "required: give --tls-cert, --tls-key and --require-sasl (tls_cert, tls_key, "
                "require_sasl), and add users with `eosdb users add`"
            )

    def wrapped(self, sock: socket.socket) -> socket.socket:
        """Wrap the connection in TLS, if configured; nothing is sent or read yet."""
        if self.tls is None:
            return sock
        context = self.tls.context()
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


IN_THE_CLEAR: Final = Security()


def shake_hands(sock: socket.socket, timeout_s: float) -> str | None:
    """Do the TLS handshake, if configured; returns the server name that the client requested. Raises
    OSError."""
    if not isinstance(sock, SecureSocket):
        return None
    sock.settimeout(timeout_s)
    sock.do_handshake()
    sock.settimeout(None)
    return sock.asked_for


def shut_down(sock: socket.socket, how: int) -> None:
    """Shut down one or both directions. Unlike SSLSocket's method, it does not send the rest in plain
    text."""
    socket.socket.shutdown(sock, how)


def security(
    tls_cert: str | os.PathLike[str] | None,
    tls_key: str | os.PathLike[str] | None,
    tls_ca: str | os.PathLike[str] | None,
    require_sasl: bool,
) -> Security:
    """Build the security configuration from the server settings. Raises ConfigError."""
    check_switch("require_sasl", require_sasl)
    given = {"tls_cert": tls_cert, "tls_key": tls_key, "tls_ca": tls_ca}
    cert, key, ca = (None if p is None else check_path(name, p) for name, p in given.items())
    if cert is None:
        if key is not None or ca is not None:
            raise ConfigError("TLS needs a certificate: give --tls-cert (tls_cert), too")
        return Security(None, require_sasl)
    if key is None:
        raise ConfigError("TLS needs the certificate's key: give --tls-key (tls_key), too")
    return Security(Certificates(cert, key, ca), require_sasl)


def _context(cert: str, key: str, ca: str | None) -> ssl.SSLContext:
    """Create the TLS context. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = SecureSocket
    context.sni_callback = _remember_name
    for path in (cert, key, *([] if ca is None else [ca])):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{path}: {os.strerror(error.errno or 0)}") from error
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{cert}, {key}: expected a certificate and its key in PEM format, without a password "
            f"({_reason(error)})"
        ) from error
    if ca is not None:  # As with Kafka's ssl.client.auth=required, clients need a certificate.
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{ca}: expected certificates in PEM format ({_reason(error)})"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    """Refuse to prompt for the key's password: a server may have no terminal."""
    raise ValueError("the key has a password")


def _remember_name(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
    if isinstance(sock, SecureSocket):
        sock.asked_for = name


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
