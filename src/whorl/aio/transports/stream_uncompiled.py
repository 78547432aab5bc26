"""The usual cases of a stream transport's methods in one function each, for the uncompiled build.

There a call is what costs. `StreamTransport` has the whole of each, to which these leave all other cases.
"""

from __future__ import annotations

from typing import Any

from whorl.aio.transports.byte_transport import as_bytes_like
from whorl.aio.transports.states import TransportState
from whorl.core.limits import LONG_READ

OPEN = int(TransportState.OPEN)


def data_arrived(self: Any, data: bytes) -> None:
    """Give data to the protocol or a stream reader, with a `try`, which is free here."""
    feed = self._feed
    try:
        if feed is not None and feed.is_open_to(self._protocol):
            feed._arrived(data)
        else:
            self._protocol.data_received(data)
    except BaseException as error:
        self._data_refused(error)


def read(self: Any) -> None:
    """A short read of bytes, which the protocol or a stream reader is given."""
    if self._buffered:
        self._read_into_buffer()
        return
    if self._last_read >= LONG_READ:
        self._read_anything()
        return
    limit = self._kernel.short_read
    data = self._kernel.recv(self._fd, limit)
    if not data or isinstance(data, int) or self._hung_up or self._urgent:
        self._took(data, limit)
        return
    size = self._last_read = len(data)
    if size < limit:
        self._more_to_read = False
    feed, protocol = self._feed, self._protocol
    try:
        if feed is None or not feed.is_direct or "data_received" in protocol.__dict__:
            protocol.data_received(data)
        elif feed.source() is not None:
            feed.put(data)
    except BaseException as error:
        self._data_refused(error)


def write(self: Any, data: bytes | bytearray | memoryview) -> None:
    """A write that leaves at once, with nothing unsent."""
    if type(data) is not bytes:
        data = as_bytes_like(data)
    size = len(data)
    if not size or self._unsent or self._state != OPEN or self._refuses_writes or self._collector.is_on:
        self._write_anything(data)
        return
    self._poller.empty_polls = 0
    sent = self._kernel.send(self._fd, data, 0)
    if sent == size:
        self._sent_total += size
        return
    code = self._queue_rest(data, sent, size)
    if code < 0:
        self._write_failed(-code)
    elif self._unsent > self._high:
        self._check_high_water()
