"""Pipes: transports over one direction of a pipe, a FIFO, a socket or a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger
from whorl.aio.transports.byte_transport import InheritedMethod
from whorl.aio.transports.pipe import ReadPipe, WritePipe
from whorl.aio.transports.private_attributes import (
    LOOP,
    PipePrivateAttributes,
    WritePipePrivateAttributes,
)
from whorl.aio.transports.public import bind_compiled_methods, repr_parts, with_asyncio_name
from whorl.core.states import Event

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


async def connect_read_pipe(
    loop: AnyLoop, protocol_factory: Callable[[], ProtocolT], pipe: Any
) -> tuple[asyncio.ReadTransport, ProtocolT]:
    """Give a protocol the data of a file object's descriptor; the transport will close the object.

    Raises ValueError for anything but pipes, sockets and terminals. Source:
    ``asyncio.loop.connect_read_pipe``.
    """
    protocol = protocol_factory()
    waiter = loop.create_future()
    transport = loop._make_read_pipe_transport(pipe, protocol, waiter)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    if loop._debug:
        logger.debug("Read pipe %r connected: (%r, %r)", pipe.fileno(), transport, protocol)
    return transport, protocol  # type: ignore[return-value]


async def connect_write_pipe(
    loop: AnyLoop, protocol_factory: Callable[[], ProtocolT], pipe: Any
) -> tuple[asyncio.WriteTransport, ProtocolT]:
    """Write to a file object's descriptor; the transport will close the object.

    Raises ValueError for anything but pipes, sockets and terminals. Source:
    ``asyncio.loop.connect_write_pipe``.
    """
    protocol = protocol_factory()
    waiter = loop.create_future()
    transport = loop._make_write_pipe_transport(pipe, protocol, waiter)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    if loop._debug:
        logger.debug("Write pipe %r connected: (%r, %r)", pipe.fileno(), transport, protocol)
    return transport, protocol  # type: ignore[return-value]


def make_read_pipe_transport(
    loop: AnyLoop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> ReadPipeTransport:
    """Return the transport that reads a pipe; the waiter is done once the protocol knows it."""
    return ReadPipeTransport(loop, pipe, protocol, waiter, extra)


def make_write_pipe_transport(
    loop: AnyLoop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> WritePipeTransport:
    """Return the transport that writes to a pipe; the waiter is done once the protocol knows it."""
    return WritePipeTransport(loop, pipe, protocol, waiter, extra)


def _described(transport: ReadPipe | WritePipe, is_polling: bool) -> list[str]:
    """Return the representation of a pipe's transport, with its state in the poller."""
    words = repr_parts(transport)
    if transport._fd >= 0 and transport._loop.is_closed():
        words.append("open")
    elif transport._fd >= 0:
        words.append("polling" if is_polling else "idle")
    else:
        words.append("closed")
    return words


def _give_up(transport: ReadPipe | WritePipe, warn: Any) -> None:
    """Handle the loss of the last reference to a transport: if it is open, warn and close it."""
    if getattr(transport, "_sock", None) is not None:  # There is none if the file was refused.
        try:
            warn(f"unclosed transport {transport!r}", ResourceWarning, source=transport)
        finally:
            transport._close_now()


@with_asyncio_name("_UnixReadPipeTransport")
class ReadPipeTransport(ReadPipe, PipePrivateAttributes):
    """The public transport of a pipe that is read; `isinstance` finds ``asyncio.ReadTransport`` too."""

    if not TYPE_CHECKING:
        loop = LOOP
        get_extra_info = InheritedMethod(
            at_import.ReadTransport, at_import.get_extra_info, ReadPipe.get_extra_info
        )

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.ReadTransport

    def __repr__(self) -> str:
        return f"<{' '.join(_described(self, bool(self._interest & Event.READABLE)))}>"

    def __del__(self, _warn: Any = at_import.warn) -> None:
        _give_up(self, _warn)


@bind_compiled_methods
@with_asyncio_name("_UnixWritePipeTransport")
class WritePipeTransport(WritePipe, WritePipePrivateAttributes):
    """The public transport of a pipe that is written to; `isinstance` finds ``asyncio.Transport`` too.

    It has the methods of a transport that reads, as asyncio's has. They raise NotImplementedError.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Transport

    if not TYPE_CHECKING:
        loop = LOOP
        get_extra_info = InheritedMethod(
            at_import.Transport, at_import.get_extra_info, WritePipe.get_extra_info
        )
        is_reading = InheritedMethod(at_import.Transport, at_import.is_reading, at_import.is_reading)
        pause_reading = InheritedMethod(at_import.Transport, at_import.pause_reading, at_import.pause_reading)
        resume_reading = InheritedMethod(
            at_import.Transport, at_import.resume_reading, at_import.resume_reading
        )
        writelines = InheritedMethod(at_import.Transport, at_import.writelines, WritePipe.writelines)

    def __repr__(self) -> str:
        words = _described(self, bool(self._unsent))
        if self._fd >= 0 and not self._loop.is_closed():
            words.append(f"bufsize={self._unsent}")
        return f"<{' '.join(words)}>"

    def __del__(self, _warn: Any = at_import.warn) -> None:
        _give_up(self, _warn)
