"""The transport that a TLS connection gives to its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whorl.aio.streams.adoption import attach_feed
from whorl.aio.transports.byte_transport import as_bytes_like
from whorl.aio.transports.flow_control import watermarks
from whorl.core.copying import refuse_copy

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.tls.engine import TLSEngine

if not cython.compiled:
    from whorl.aio.transports.byte_transport import joined

    def is_open(transport: Any) -> bool:
        """Return whether a transport was neither closed nor lost."""
        engine = getattr(transport, "_ssl_protocol", None)
        return engine is not None and not engine._closing


#: The watermarks of asyncio's TLS transports, in bytes.
HIGH_WATER_WRITE = 512 * 1024
HIGH_WATER_READ = 256 * 1024


class TLSStream:
    """A TLS connection (asyncio: ``asyncio.Transport``). The user sees `tls.TLSTransport`."""

    __reduce__ = refuse_copy

    def __init__(self, loop: Any, engine: TLSEngine) -> None:
        self._loop = loop
        self._ssl_protocol = engine
        engine._high, engine._low = HIGH_WATER_WRITE, HIGH_WATER_WRITE // 4
        engine._read_high, engine._read_low = HIGH_WATER_READ, HIGH_WATER_READ // 4

    def __del__(self) -> None:
        if is_open(self):
            dropped: Any = self
            self._ssl_protocol._closing = True
            dropped._was_dropped()

    # State and buffers.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection: ssl_object, peercert, cipher, or one from underneath."""
        return self._ssl_protocol.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the transport is closed or being closed."""
        return self._ssl_protocol._closing or self._ssl_protocol._is_transport_closing()

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        """Return the protocol that is called, or None when the connection is lost."""
        protocol: asyncio.BaseProtocol | None = self._ssl_protocol._app_protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._ssl_protocol._app_feed = attach_feed(protocol)
        self._ssl_protocol._app_protocol = protocol
        self._ssl_protocol._app_is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def is_reading(self) -> bool:
        """Return whether the protocol gets data."""
        return not self._ssl_protocol._app_reading_paused

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be given to the kernel, in the clear or encrypted."""
        return self._ssl_protocol._unsent()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark, in bytes."""
        return self._ssl_protocol._low, self._ssl_protocol._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks, in bytes; ValueError unless high >= low >= 0."""
        engine = self._ssl_protocol
        engine._high, engine._low = watermarks(high, low, HIGH_WATER_WRITE)
        engine._control_writing()

    def get_read_buffer_size(self) -> int:
        """Return the number of received bytes that were not decrypted yet."""
        return int(self._ssl_protocol._incoming.pending)

    def get_read_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark of waiting bytes: reading resumes and pauses there."""
        return self._ssl_protocol._read_low, self._ssl_protocol._read_high

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the read watermarks, in bytes; ValueError unless high >= low >= 0."""
        engine = self._ssl_protocol
        engine._read_high, engine._read_low = watermarks(high, low, HIGH_WATER_READ)
        engine._control_reading()

    # Reading, writing and closing.

    def pause_reading(self) -> None:
        """Give the protocol no data until `resume_reading`."""
        self._ssl_protocol._app_reading_paused = True

    def resume_reading(self) -> None:
        """Give the protocol data again."""
        self._ssl_protocol._resume_app_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`: at once as far as the kernel takes it, the rest when it can."""
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
            data = as_bytes_like(data)
        if len(data):
            self._ssl_protocol._write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send all of `list_of_data` in order, in as few records as possible."""
        data = joined(list_of_data)
        if data:
            self._ssl_protocol._write(data)
            return
        self._ssl_protocol._write_all(
            [data if type(data) is bytes else bytes(memoryview(data)) for data in list_of_data]
        )

    def write_eof(self) -> None:
        """Raise NotImplementedError: TLS ends both ways at once (``asyncio.WriteTransport.write_eof``)."""
        raise NotImplementedError

    def can_write_eof(self) -> bool:
        """Return False: a TLS connection cannot be closed one side at a time."""
        return False

    def close(self) -> None:
        """Read no more, send the unsent data, send close_notify, then close the connection."""
        if self._ssl_protocol._closing:
            self._ssl_protocol._forget()
        else:
            self._ssl_protocol._start_shutdown()

    def abort(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self._ssl_protocol._abort(None)

    def _force_close(self, error: BaseException | None) -> None:
        self._ssl_protocol._abort(error)
