"""TLS contexts for programs, with the certificate of the transports' tests."""

from __future__ import annotations

import ssl
from pathlib import Path

_PEM = Path(__file__).parents[2] / "aio" / "certificates" / "localhost.pem"


def for_server() -> ssl.SSLContext:
    """Return a server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_PEM)
    return context


def for_client() -> ssl.SSLContext:
    """Return a client's context, which takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
