"""A certificate for localhost, which is its own authority, and the contexts of both sides."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "certificates" / "localhost.pem"


def server_context() -> ssl.SSLContext:
    """What a server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_context() -> ssl.SSLContext:
    """What a client trusts: that server and nobody else."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))
