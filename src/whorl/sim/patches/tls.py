"""The chance of TLS: OpenSSL draws from the seed, and sends nothing that holds the real time.

OpenSSL has one generator for a process, which a program may replace (man 3 RAND_set_rand_method). Session
tickets hold the time, so contexts that are made inside a world send none. Where the functions of OpenSSL are
hidden in Python, OpenSSL keeps its own generator. Bytes then differ from run to run, and the digest
takes their lengths only.
"""

from __future__ import annotations

import ctypes
import ssl
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from whorl.sim.patches.current import RUNNING, Replacement

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from whorl.sim.world.world import World

_BYTES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_int)
_STATUS = ctypes.CFUNCTYPE(ctypes.c_int)


class _Method(ctypes.Structure):
    """OpenSSL's RAND_METHOD (openssl/rand.h)."""

    _fields_ = (
        ("seed", ctypes.c_void_p),
        ("bytes", _BYTES),
        ("cleanup", ctypes.c_void_p),
        ("add", ctypes.c_void_p),
        ("pseudorand", _BYTES),
        ("status", _STATUS),
    )


class _Chance:
    """OpenSSL's generator: the library, the method that stands in, and where its bytes come from."""

    def __init__(self) -> None:
        self.source: Callable[[str], random.Random] | None = None  # of the world that runs, if it seeds TLS
        self._generator: random.Random | None = None  # of that world, once it is asked for
        self._library: Any = None
        self._was_sought = False
        fill = _BYTES(self._fill)
        self._method = _Method(None, fill, None, None, fill, _STATUS(self._status))

    def library(self) -> Any:
        """Return the OpenSSL that Python uses; None if its functions are hidden."""
        if not self._was_sought:
            self._was_sought = True
            try:
                import _ssl

                library = ctypes.CDLL(getattr(_ssl, "__file__", None))
                library.RAND_get_rand_method.restype = ctypes.c_void_p
                library.RAND_set_rand_method.argtypes = (ctypes.c_void_p,)
                self._library = library
            except (ImportError, OSError, AttributeError):
                self._library = None
        return self._library

    def _fill(self, buffer: Any, size: int) -> int:
        if self.source is None:
            return 0
        if self._generator is None:
            self._generator = self.source("tls")
        ctypes.memmove(buffer, self._generator.randbytes(size), size)
        return 1

    def _status(self) -> int:
        return 1

    @contextmanager
    def seeded(self, source: Callable[[str], random.Random]) -> Iterator[None]:
        """Let OpenSSL draw from a generator of a world's for the time of a `with` block."""
        library = self.library()
        former = library.RAND_get_rand_method()
        self.source = source
        library.RAND_set_rand_method(ctypes.addressof(self._method))
        try:
            yield
        finally:
            library.RAND_set_rand_method(former)
            self.source = self._generator = None


_CHANCE = _Chance()


def seeded_tls(world: World) -> AbstractContextManager[None]:
    """Let a world decide the chance of TLS for the time of a `with` block, if its options say so."""
    if world.options.tls == "real" or _CHANCE.library() is None:
        return nullcontext()
    return _CHANCE.seeded(world.decisions.rng)


_new_context = ssl.SSLContext.__new__
_wrap_bio = ssl.SSLContext.wrap_bio


def _make_context(cls: Any, protocol: Any = None, *args: Any, **options: Any) -> Any:
    """Make a context; in a world with seeded TLS, one whose server sends no tickets."""
    made = _new_context(cls, protocol, *args, **options)
    if _CHANCE.source is not None:
        made.options |= ssl.OP_NO_TICKET
        if made.protocol != ssl.PROTOCOL_TLS_CLIENT:
            made.num_tickets = 0
    return made


def _wrap(
    self: Any, incoming: Any, outgoing: Any, server_side: bool = False, *args: Any, **options: Any
) -> Any:
    """Begin TLS. Let the digest take lengths if the bytes are not those of the seed."""
    world = RUNNING.world
    if world is not None and not world.digest.takes_lengths:
        if _CHANCE.source is None:
            world.digest.takes_lengths = True
            if _CHANCE.library() is None:
                world.remark(
                    "OpenSSL is hidden in this Python: the bytes of TLS are not the seed's, only their sizes"
                )
        elif server_side and self.num_tickets:
            world.digest.takes_lengths = True
            world.remark(
                "a TLS server's context was made outside the world: its session tickets hold the real time. "
                "Make it inside, or set num_tickets = 0"
            )
    return _wrap_bio(self, incoming, outgoing, server_side, *args, **options)


TLS: list[Replacement] = [
    (ssl.SSLContext, "__new__", _make_context),
    (ssl.SSLContext, "wrap_bio", _wrap),
]
