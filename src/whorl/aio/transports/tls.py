"""TLS as its users see it: the protocol over any transport, and the transport it gives to a protocol.

The code that runs is in `tls_lifecycle` and `tls_stream`, and below both in `tls.engine`.
"""

from __future__ import annotations

import asyncio
from asyncio import constants, sslproto
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.tls.states import STATE_NAMES
from whorl.aio.transports.public import bind_compiled_methods, with_asyncio_name
from whorl.aio.transports.tls_lifecycle import TLSLifecycle
from whorl.aio.transports.tls_stream import TLSStream

if TYPE_CHECKING:
    from asyncio.constants import _SendfileMode

    from whorl.aio.loop_type import AnyLoop


@bind_compiled_methods
@with_asyncio_name("_SSLProtocolTransport")
class TLSTransport(TLSStream):
    """A TLS connection over any transport."""

    _start_tls_compatible = True
    _sendfile_compatible: _SendfileMode = constants._SendfileMode.FALLBACK

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return sslproto._SSLProtocolTransport

    @property
    def _closed(self) -> bool:
        return self._ssl_protocol._closing

    @property
    def _protocol_paused(self) -> bool:
        return self._ssl_protocol._app_writing_paused

    @property
    def _sslcontext(self) -> Any:
        return self._tls_protocol._sslcontext

    @property
    def _tls_protocol(self) -> TLSProtocol:
        protocol: Any = self._ssl_protocol
        return protocol  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        shown = f"asyncio.sslproto.{type(self).__name__} object at {id(self):#x}"  # as asyncio shows it
        return f"<{shown} {self._tls_protocol.describe()}>"

    def _test__append_write_backlog(self, data: bytes) -> None:
        # CPython's tests queue data in this way, and expect that no code tries to send it yet.
        self._ssl_protocol._append(data, len(data))

    def _was_dropped(self, _warn: Any = at_import.warn) -> None:
        """Warn of a transport that is open and has no references any more."""
        _warn(f"unclosed transport <asyncio.{type(self).__name__} object>", ResourceWarning, source=self)


@with_asyncio_name("SSLProtocol")
class TLSProtocol(TLSLifecycle, at_import.BufferedProtocol):
    """The TLS protocol of one transport (asyncio: ``asyncio.sslproto.SSLProtocol``)."""

    def __init__(
        self,
        loop: AnyLoop,
        app_protocol: asyncio.BaseProtocol,
        sslcontext: Any,
        waiter: asyncio.Future[None] | None,
        server_side: bool = False,
        server_hostname: str | None = None,
        call_connection_made: bool = True,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> None:
        TLSLifecycle.__init__(
            self,
            loop,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            call_connection_made,
            ssl_handshake_timeout,
            ssl_shutdown_timeout,
        )
        transport = self._app_transport = TLSTransport(loop, self)
        transport.set_protocol(app_protocol)

    def __repr__(self) -> str:
        return f"<asyncio.sslproto.{type(self).__name__} object at {id(self):#x}>"

    def describe(self) -> str:
        """Return a representation with the state and the transport underneath."""
        return f"{STATE_NAMES[self._state]} over {self._transport!r}"
