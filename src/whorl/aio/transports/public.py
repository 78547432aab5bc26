"""The transports as users see them: plain Python, so that methods can be replaced on an instance.

`isinstance` finds asyncio's class and ours. A compiled class cannot derive from `asyncio.Transport`, so these
classes answer for it by `__class__`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.interop import at_import
from whorl.aio.transports import states
from whorl.aio.transports.byte_transport import InheritedMethod, method_of_class
from whorl.aio.transports.private_attributes import LOOP, SOCKET, SocketPrivateAttributes
from whorl.aio.transports.stream import StreamTransport

if TYPE_CHECKING:
    from asyncio.constants import _SendfileMode

Class = TypeVar("Class", bound=type)


def with_asyncio_name(name: str) -> Callable[[Class], Class]:
    """Give a class the name of asyncio's class: programs and warning filters look for that name."""

    def rename(cls: Class) -> Class:
        cls.__name__ = cls.__qualname__ = name
        return cls

    return rename


#: The methods that programs call most.
OFTEN_CALLED = (
    "close",
    "get_protocol",
    "get_write_buffer_size",
    "is_closing",
    "is_reading",
    "pause_reading",
    "resume_reading",
    "sendto",
    "write",
    "writelines",
)


def bind_compiled_methods(cls: Class) -> Class:
    """Give a class its own descriptors for compiled methods that it inherits."""
    for name in OFTEN_CALLED:
        if hasattr(cls, name) and type(vars(cls).get(name)) is not InheritedMethod:
            setattr(cls, name, method_of_class(cls, getattr(cls, name)))
    return cls


def repr_parts(transport: Any) -> list[str]:
    """Return the first parts of a transport's representation: its name, state and descriptor."""
    words = [type(transport).__name__]
    if transport._state == states.CLOSED:
        words.append("closed")
    elif transport._state != states.OPEN:
        words.append("closing")
    words.append(f"fd={transport._attached_fd}")
    return words


def transport_repr(transport: Any, is_read: bool, is_written: bool) -> str:
    """Return the representation of a transport, in asyncio's words."""
    words = repr_parts(transport)
    if transport._fd >= 0 and not transport._loop.is_closed():
        words.append(f"read={'polling' if is_read else 'idle'}")
        writing = "polling" if is_written else "idle"
        words.append(f"write=<{writing}, bufsize={transport._unsent}>")
    return f"<{' '.join(words)}>"


@bind_compiled_methods
@with_asyncio_name("_SelectorSocketTransport")
class SocketTransport(StreamTransport, SocketPrivateAttributes):
    """A TCP or UNIX stream connection."""

    if not TYPE_CHECKING:
        loop = LOOP
        get_extra_info = InheritedMethod(
            at_import.Transport, at_import.get_extra_info, StreamTransport.get_extra_info
        )

    _start_tls_compatible = True
    _sendfile_compatible: _SendfileMode = asyncio.constants._SendfileMode.TRY_NATIVE

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio.Transport

    _sock = SOCKET

    def __repr__(self) -> str:
        unsent = self.get_write_buffer_size()  # before the message is made: to send the held writes may fail
        return transport_repr(self, bool(self._reading), bool(unsent))

    def _was_dropped(self, _warn: Any = at_import.warn) -> None:
        """Warn and close a transport that is open and has no references any more."""
        try:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
        finally:
            self._close_now()
