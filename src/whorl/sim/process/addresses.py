"""The addresses that a program gives to a socket: their form, and a number in the place of a name."""

from __future__ import annotations

import os
import socket
from operator import index
from typing import Any, Protocol

_LAST_PORT = 65535
_LAST_FLOW = 0xFFFFF
_FORMS = {
    socket.AF_INET: (2, "AF_INET address must be a pair (host, port)"),
    socket.AF_INET6: (4, "AF_INET6 address must be a tuple (host, port[, flowinfo[, scopeid]])"),
}


class Resolver(Protocol):
    """The host, as one who looks up names."""

    def number_of(self, name: str, family: int) -> str: ...


def numeric(resolver: Resolver, family: int, address: Any, call: str) -> Any:
    """Return the address as a kernel takes it: the path of a UNIX socket, or a number and a port.

    A wrong address raises what a method `call` of `socket.socket` raises: TypeError for a wrong form,
    OverflowError for a port out of range, socket.gaierror for a name without an address of this family.
    """
    if family == socket.AF_UNIX:
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"a bytes-like object is required, not {type(address).__name__!r}")
        path = os.fsdecode(address)
        return os.fsencode(path) if path.startswith("\0") else path  # as Python shows them
    most, form = _FORMS[socket.AddressFamily(family)]
    if not isinstance(address, tuple):
        name = socket.AddressFamily(family).name
        raise TypeError(f"{call}(): {name} address must be tuple, not {type(address).__name__}")
    if not 2 <= len(address) <= most:
        raise TypeError(form)
    text, port, more = _text(address[0]), index(address[1]), [*map(index, address[2:])]
    is_int = -(2**31) <= port < 2**31
    number = _number(resolver, text, family) if is_int else ""  # a larger one is refused before the look-up
    if not 0 <= port <= _LAST_PORT:
        raise OverflowError(f"{call}(): port must be 0-65535.")
    if more and more[0] & 0xFFFFFFFF > _LAST_FLOW:
        raise OverflowError(f"{call}(): flowinfo must be 0-1048575.")
    return (number, port, *more)


def _text(name: Any) -> str:
    if isinstance(name, str):
        text = name
        if not text.isascii():
            _check_encodes(text)
    elif isinstance(name, (bytes, bytearray)):
        text = name.decode("latin-1")
    else:
        raise TypeError(f"str, bytes or bytearray expected, not {type(name).__name__}")
    if "\0" in text:
        raise TypeError("host name must not contain null character")
    return text


def _check_encodes(name: str) -> None:
    try:
        name.encode("idna")
    except UnicodeError:
        raise TypeError("encoding of hostname failed") from None


def _number(resolver: Resolver, text: str, family: int) -> str:
    if not text:
        return "::" if family == socket.AF_INET6 else "0.0.0.0"
    if text in ("<broadcast>", "255.255.255.255"):
        if family != socket.AF_INET:
            raise OSError("address family mismatched")
        return "255.255.255.255"
    return resolver.number_of(text, family)
