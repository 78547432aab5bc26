"""The public class of datagram endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.transports.byte_transport import InheritedMethod
from whorl.aio.transports.datagram import DatagramEndpoint
from whorl.aio.transports.private_attributes import LOOP, DatagramPrivateAttributes
from whorl.aio.transports.public import bind_compiled_methods, transport_repr, with_asyncio_name
from whorl.core.states import Event


class _BothTransports(at_import.Transport, at_import.DatagramTransport):
    """The class of asyncio's datagram transport, for `isinstance`."""


@bind_compiled_methods
@with_asyncio_name("_SelectorDatagramTransport")
class DatagramTransport(DatagramEndpoint, DatagramPrivateAttributes):
    """A datagram endpoint; plain Python, so that methods can be replaced on an instance.

    It has the methods of a transport that writes a stream, as asyncio's has. They raise NotImplementedError.
    """

    max_size = 256 * 1024  # asyncio's name for the size of the longest datagram that is received whole
    _header_size = 8

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _BothTransports

    if not TYPE_CHECKING:
        loop = LOOP
        get_extra_info = InheritedMethod(
            _BothTransports, at_import.get_extra_info, DatagramEndpoint.get_extra_info
        )
        write = InheritedMethod(_BothTransports, at_import.write, at_import.write)
        writelines = InheritedMethod(_BothTransports, at_import.writelines, at_import.writelines)
        write_eof = InheritedMethod(_BothTransports, at_import.write_eof, at_import.write_eof)
        can_write_eof = InheritedMethod(_BothTransports, at_import.can_write_eof, at_import.can_write_eof)

    def __repr__(self) -> str:
        is_read, is_written = self._interest & Event.READABLE, self._interest & Event.WRITABLE
        return transport_repr(self, bool(is_read), bool(is_written))

    def __del__(self, _warn: Any = at_import.warn) -> None:
        if getattr(self, "_sock", None) is not None:  # There is none if its loop refused it.
            try:
                _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            finally:
                self._close_now()
