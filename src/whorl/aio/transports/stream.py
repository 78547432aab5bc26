"""The data path of asyncio's stream transports: sockets, between the stream engine and a protocol."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextvars import Context
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.at_import import BufferedProtocol, StreamReaderProtocol, logger
from whorl.aio.interop.stock import connection_made_of
from whorl.aio.streams.adoption import attach_feed, end_arrived
from whorl.aio.streams.feed import StreamFeed
from whorl.aio.tls.engine import TLSEngine
from whorl.aio.transports import states
from whorl.aio.transports.byte_transport import BaseTransport, WriteTransport
from whorl.aio.transports.connection_set import ConnectionSet
from whorl.aio.transports.transport_socket import TransportSocket
from whorl.core import limits
from whorl.core.kernel.errors import os_error
from whorl.core.kernel.per_socket import error_of, kernel_for
from whorl.core.kernel.sockets import TCP_PROTOCOLS, is_tcp
from whorl.handles.streams.engine import Stream

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop, FdTable
    from whorl.core.loop.lifecycle import LoopLifecycle
    from whorl.core.pollers.contract import IOHandle

if not cython.compiled:
    from whorl.core.loop.state import thread_number
    from whorl.handles.streams.engine import count_closed, count_opened, count_read, count_sent

    def new(cls: Any) -> Any:
        """Return an object of a class, without calling `__init__`."""
        return cls.__new__(cls)

    def is_made(transport: Any) -> bool:
        """Return whether a transport has something to close; an uninitialized one has not."""
        return getattr(transport, "_is_made", False)

    _raised = threading.local()  # compiled, an exception stays set in its thread

    def deliver_catching(protocol: Any, method: str, argument: Any) -> bool:
        """Call a method, and return whether it raised nothing."""
        try:
            getattr(protocol, method)(argument)
        except BaseException as error:
            _raised.error = error
            return False
        return True

    def go_on_raising() -> None:
        """Raise the exception that the method raised."""
        try:
            raise _raised.error
        finally:
            del _raised.error


NO_ARGUMENTS: tuple[()] = ()
AF_UNIX = int(socket.AF_UNIX)

GET_BUFFER: Any = TLSEngine.get_buffer
BUFFER_UPDATED: Any = TLSEngine.buffer_updated

#: After this many writes to a lost connection each further one logs a warning, as in asyncio.
QUIET_WRITES = 4


class StreamTransport(WriteTransport):
    """A connected stream socket (asyncio: ``asyncio.Transport``).

    The loop's methods make these objects, not users. `context` is where the protocol's callbacks run; a copy
    of the caller's by default.
    """

    def _set_up(self, loop: Any) -> None:
        WriteTransport._set_up(self, loop)
        self._is_made = False  # whether there is something to close
        self._peer: Any = None  # as the kernel gave it, or as a name, until it is stored as peername
        self._ipv4_peer = 0  # the same address as a number
        self._sockname: Any = None
        # The family, the protocol number and a UNIX server's name, while there is no socket object.
        self._kind: tuple[int, int, Any] | None = None
        self._server: Any = None
        self._clients: ConnectionSet | None = None  # a server's set, if it keeps this in a slot
        self._slot = -1  # the index of that slot
        self._empty_waiter: asyncio.Future[None] | None = None
        self._buffered = False  # whether the protocol provides its buffers
        self._protocol_is_tls = False  # whether the protocol is Whorl's TLS
        self._feed: StreamFeed | None = None  # a stream reader's, which gets data in place of the protocol
        self._eof_written = False  # whether the user has written the last byte
        self._write_shut = False  # whether the shutdown of the writing side was sent to the peer
        self._shown_socket: TransportSocket | None = None  # the object that programs are given as the socket
        # Whether the kernel can hold writes: by TCP, if no program has made the socket and sets its options.
        self._can_hold = False
        self._is_held = False  # whether it holds some
        self._run = 0  # the last run of pieces that it has written (`HeldWrites`)
        self._pieces = 1  # how many these are
        self._expected_pieces = 1  # how many the next run is likely to have

    def __init__(
        self,
        loop: AnyLoop,
        sock: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: Context | None = None,
    ) -> None:
        WriteTransport.__init__(self, loop, extra, context)
        self._server = server
        try:
            kernel = self._kernel
            self._kernel = kernel_for(kernel, sock)
            # No edge announces data that a socket's own method has kept to itself.
            is_edge = self._kernel is kernel and is_tcp(sock)
            self._can_hold = is_edge and server is not None
            self._attach(sock, sock.fileno(), True, is_edge)
            self._fill_extra(sock)
            if sock.family != AF_UNIX:
                self._kernel.set_option(sock, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop._transports.add(self._fd, self)
            self._is_made = True
            count_opened(self)
            self.set_protocol(protocol)
            if server is not None:
                server._attach(self)
                siblings = self._siblings()
                if siblings is not None:
                    self._pieces = self._expected_pieces = siblings.expected_pieces
            self._schedule_connection_made(waiter)
        except BaseException:
            self._release_socket()
            raise

    def _init_connected(
        self,
        loop: AnyLoop,
        fd: int,
        kind: tuple[int, int, Any],
        names: tuple[int, bytes | int | tuple[Any, ...] | None, Any],
        protocol: asyncio.BaseProtocol,
        context: Context,
        sock: Any,
        waiter: Any,
    ) -> None:
        """Work on a connected descriptor, in place of `__init__`.

        `kind` holds the family and the protocol number, and for the connections of a UNIX server its name.
        Without `sock` the loop has made the descriptor: a socket object is made when a program asks for it.
        `names` is a result of the kernel's `accept_descriptor`. `waiter` is done after `connection_made`. If
        this raises, the descriptor is left to the caller.
        """
        self._set_up(loop)
        machine: LoopLifecycle = loop
        machine._internal_handle_opened(self)
        self._context = context
        if sock is None:
            self._kind = kind
        else:
            self._shown_socket = TransportSocket(sock, self._held)
            self._extra_dict = {"socket": self._shown_socket}
        peer = names[1]
        self._sockname = names[2] if kind[2] is None else kind[2]
        if type(peer) is int:
            self._ipv4_peer = peer
        elif peer is not None:
            self._peer = peer
        else:
            self._extra.update(peername=None, sockname=self._sockname)
        is_edge = kind[0] != AF_UNIX and kind[1] in TCP_PROTOCOLS
        self._can_hold = is_edge and sock is None
        self._attach(sock, fd, True, is_edge)
        try:
            self._set_protocol(protocol)
            is_adopted = self._feed is not None
            self._connection_made = connection_made_of(protocol) if is_adopted else protocol.connection_made
            table: FdTable = loop._transports
            table.add(fd, self)
            self._is_made = self._queues_itself = True
            count_opened(self)
            self._connection_waiter = waiter
            machine._enqueue(self)
        except BaseException:
            self._release_socket()
            raise

    def _register_with_server(self, server: Any, clients: ConnectionSet) -> None:
        """Add the transport to a server's connections."""
        self._slot = clients.add_slot(self)
        self._server = server
        self._clients = clients
        self._pieces = self._expected_pieces = clients.expected_pieces

    def _release_socket(self) -> None:
        """Leave the connection's socket to the code that gave it."""
        loop: Any = self._loop
        if self._fd >= 0:
            loop._transports.discard(self._fd, self)
        self._fd = -1
        self._sock = None
        self._is_made = False
        count_closed(self)
        self._unregister_from_server()

    def _unregister_from_server(self) -> None:
        server, clients = self._server, self._clients
        self._server = self._clients = None
        if clients is not None:
            clients.discard_slot(self._slot)
            if clients.is_over and not len(clients):
                server._wake_if_done()
        elif server is not None:
            server._detach(self)

    def _fill_extra(self, sock: Any) -> None:
        extra = self._extra
        extra["socket"] = self._shown_socket = TransportSocket(sock, self._held)
        name = self._kernel.socket_name(sock)
        extra["sockname"] = None if isinstance(name, int) else name
        if "peername" not in extra:
            peer = self._kernel.peer_name(sock)
            extra["peername"] = None if isinstance(peer, int) else peer

    def fileno(self) -> int:
        """Return the descriptor, or -1."""
        return self._fd

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a known fact about the connection: socket, sockname, peername and others."""
        if name == "socket":
            self._show_socket()
        elif name != "peername" and name != "sockname":
            if self._extra_dict is None:
                return default  # Streams ask for the TLS context of each connection.
            return self._extra_dict.get(name, default)
        return self._extra.get(name, default)

    @property
    def _extra(self) -> dict[str, Any]:
        """The known facts about the connection, by name."""
        if self._extra_dict is None:
            self._extra_dict = {}
        if self._peer is not None or self._ipv4_peer:
            peer = self._ipv4_peer if self._peer is None else self._peer
            self._extra_dict["peername"] = peer if type(peer) is tuple else self._kernel.name_of(peer)
            self._extra_dict["sockname"] = self._sockname
            self._peer = None
            self._ipv4_peer = 0
        return self._extra_dict

    def _addresses(self) -> tuple[Any, Any]:
        """Return the peer's address and the local one, and store nothing: any thread may call this."""
        known, peer, number = self._extra_dict, self._peer, self._ipv4_peer
        if known is not None and "peername" in known:
            return known["peername"], known.get("sockname")
        if peer is None and number:
            peer = number
        known_peer = peer if peer is None or type(peer) is tuple else self._kernel.name_of(peer)
        return known_peer, self._sockname

    def _socket(self) -> Any:
        """Return the socket object, which is made now if there was none; None if the transport is closed."""
        if self._kind is not None:
            family, number, _ = self._kind
            self._kind = None
            sock = self._kernel.socket_of(self._fd, family, number)
            self._extra["socket"] = self._shown_socket = TransportSocket(sock, self._held)
            if self._fd >= 0:
                self._sock = sock
        return self._sock

    def _show_socket(self) -> None:
        """Make the socket object if there is none, and let it know its peer while that is there."""
        if self._kind is not None:
            self._socket()
        shown = self._shown_socket
        if (
            shown is not None
            and self._edge
            and self._interest
            and not self._hung_up
            and self._state < states.LOST
        ):
            peer = self._extra.get("peername")
            if peer is not None:  # An edge will tell that it is gone, also while reading is paused.
                shown._peername = peer

    def _peer_left(self) -> None:
        if self._shown_socket is not None:
            self._shown_socket._peername = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._set_protocol(protocol)

    def _set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._feed = attach_feed(protocol) if type(protocol) is StreamReaderProtocol else None
        if self._feed is not None:
            self._buffered = self._protocol_is_tls = False
            return
        self._buffered = isinstance(protocol, BufferedProtocol)
        self._protocol_is_tls = isinstance(protocol, TLSEngine) and (
            type(protocol).get_buffer is GET_BUFFER and type(protocol).buffer_updated is BUFFER_UPDATED
        )

    def is_reading(self) -> bool:
        """Return whether the protocol gets data."""
        return self._state == states.OPEN and not self._paused

    # Reading.

    def pause_reading(self) -> None:
        """Give the protocol no data until `resume_reading`."""
        self._pause()

    def resume_reading(self) -> None:
        """Give the protocol data again."""
        self._resume()

    def _read(self) -> None:
        if self._buffered:
            self._read_into_buffer()
            return
        if self._last_read >= limits.LONG_READ:
            self._read_much()
            return
        result = self._kernel.recv(self._fd, limits.READ_SIZE)
        if type(result) is bytes and not (self._hung_up or self._urgent):
            data = result
            size = len(data)
            if 0 < size < limits.READ_SIZE:
                count_read(self, size)
                self._last_read = size
                self._more_to_read = False
                self._data_arrived(data)
                return
        self._handle_read(result, limits.READ_SIZE)

    def _read_much(self) -> None:
        """Read again after a long read."""
        limit = self._read_limit()
        if self._feed is not None and limits.LONGEST_FED < limit < limits.READ_SIZE:
            limit = limits.LONGEST_FED
        self._handle_read(self._kernel.recv(self._fd, limit), limit)

    def _read_into_buffer(self) -> None:
        """Let the kernel write into the buffer that the protocol provides."""
        if self._protocol_is_tls:
            self._read_records()
            return
        protocol = self._protocol  # It may replace itself meanwhile, but the buffer belongs to it.
        size = 0
        try:
            buffer = protocol.get_buffer(-1)
            size = len(buffer)
            if not size:
                raise RuntimeError("get_buffer() returned an empty buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.get_buffer() call failed.")
        if not size:
            return
        try:
            result = self._kernel.recv_into(self._fd, buffer)
        except (TypeError, ValueError, BufferError) as error:
            self._fatal_error(error, "Fatal read error on socket transport")
        else:
            self._note_read(result, size)
            if result > 0:
                try:
                    protocol.buffer_updated(result)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")

    def _read_records(self) -> None:
        """Let the kernel write into the buffer of TLS, without a call to get the buffer."""
        engine: Any = self._protocol
        try:
            result = self._kernel.recv_into(self._fd, engine._scratch)
            self._note_read(result, limits.READ_SIZE)
            if result > 0:
                engine._scratch_filled(result)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")

    def _data_arrived(self, data: bytes) -> None:
        feed = self._feed
        if feed is not None and feed.is_open_to(self._protocol):
            try:
                feed._arrived(data)
            except BaseException as error:
                self._data_refused(error)
        # With `try` here each message would cost a look at the exception that is being handled.
        elif not deliver_catching(self._protocol, "data_received", data):
            try:
                go_on_raising()
            except BaseException as error:
                self._data_refused(error)

    def _data_refused(self, error: BaseException) -> None:
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise error
        self._fatal_error(error, "Fatal error: protocol.data_received() call failed.")

    def _end_arrived(self) -> None:
        if self._loop._debug:
            logger.debug("%r received EOF", self)
        feed = self._feed
        try:
            keep_open = feed is not None and end_arrived(self._protocol, feed)
            if not keep_open:
                keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            self.close()
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
        else:
            if keep_open:
                self._stop_reading()  # Until now the representation shows it as reading, like asyncio's.
            else:
                self.close()

    def _read_failed(self, code: int) -> None:
        self._fatal_error(error_of(self._kernel, code), "Fatal read error on socket transport")

    # Writing.

    def _send(self, data: Any, size: int) -> int:
        """Send `data`. Let the kernel hold it if the callback is likely to write more (`HeldWrites`)."""
        if self._count_piece() and size <= limits.SMALL_WRITE and self._may_hold():
            return self._send_more(data, size)
        code = Stream._send(self, data, size)
        if self._is_held and not self._unsent:
            self._is_held = False  # What was held has left with it.
        return code

    def _send_all(self, chunks: list[bytes], size: int) -> None:
        self._count_piece()
        Stream._send_all(self, chunks, size)
        if self._is_held and not self._unsent:
            self._is_held = False

    def _count_piece(self) -> bool:
        """Count a piece of the running callback; return whether more are likely to follow soon.

        A write of another thread, or between callbacks, counts for nothing.
        """
        held = self._held
        if held.thread != thread_number():
            return False
        if self._run == held.run:
            self._pieces = self._pieces + 1
        else:
            self._learn_pieces()
            self._run = held.run = held.run + 1
            self._pieces = 1
        return self._pieces != self._expected_pieces or held.may_wait()

    def _learn_pieces(self) -> None:
        """Expect that the next run has as many pieces as the last; the server's new connections do alike."""
        if self._pieces == self._expected_pieces:
            return
        self._expected_pieces = self._pieces
        siblings = self._siblings()
        if siblings is not None:
            siblings.expected_pieces = self._pieces

    def _siblings(self) -> ConnectionSet | None:
        """Return the connections of the server, if this is one of them."""
        clients = getattr(self._server, "_clients", None)
        return clients if isinstance(clients, ConnectionSet) else None

    def _may_hold(self) -> bool:
        """Return whether the kernel may hold a write of a callback that `_count_piece` has counted."""
        return (
            self._can_hold
            and not self._unsent
            and not self._more_to_read  # Closed with data unread, the socket would be reset and drop it.
            and not self._is_tuned()
        )

    def _send_more(self, data: Any, size: int) -> int:
        held = self._held
        if held.streams and not held.collects:
            held.act(self)
        if not self._is_held:
            held.add(self)
            self._is_held = True
        sent = self._kernel.send_more(self._fd, data, 0)
        if sent >= size:
            count_sent(self, size)
            return 0
        return self._queue_rest(data, sent, size)

    def _push(self) -> None:
        """Let what the kernel holds leave. Where it refuses that, it does so by itself after a while."""
        if not self._is_held:
            return
        self._is_held = False
        if self._fd >= 0 and not self._is_tuned():
            self._poller.skips.expect_events()  # The peer may be on this loop.
            if self._kernel.push(self._fd) < 0:
                self._can_hold = False

    def _is_tuned(self) -> bool:
        """Return whether the program decides itself when small packets leave."""
        return self._shown_socket is not None and bool(self._shown_socket._is_tuned)

    def _report_unsent(self) -> None:
        """Report every unsent byte to the protocol."""
        self._high = self._low = 0
        self._check_high_water()

    def write_eof(self) -> None:
        """Shut the writing side once all is sent; the peer reads to its end.

        Raises OSError if nothing is unsent and the connection is gone (``asyncio.WriteTransport.write_eof``).
        """
        if self._state != states.OPEN or self._eof_written:
            return
        self._eof_written = self._refuses_writes = True
        if not self._unsent:
            code = self._shut_write_side()
            if code < 0:
                raise os_error(code)

    def can_write_eof(self) -> bool:
        """Return True: stream sockets can be closed one side at a time."""
        return True

    def _check_writable(self, method: str) -> None:
        if self._eof_written:
            raise RuntimeError(f"Cannot call {method}() after write_eof()")
        if self._empty_waiter is not None:
            raise RuntimeError(f"unable to {method}; sendfile is in progress")

    def _count_lost_write(self) -> bool:
        """Return whether a write is lost, as nothing can be sent any more; count it, and warn of many."""
        if self._state < states.LOST:
            return False
        if self._lost_writes >= QUIET_WRITES:
            logger.warning("socket.send() raised exception.")
        else:
            self._lost_writes += 1
        return True

    def _shut_write_side(self) -> int:
        """Shut the write side once; return 0 or `-errno`."""
        if self._write_shut:
            return 0
        self._write_shut = True
        if self._held.streams:
            self._held.act(self)
        return self._kernel.shutdown(self._socket(), socket.SHUT_WR)

    def _write_failed(self, code: int) -> None:
        error = error_of(self._kernel, code)
        self._fatal_error(error, "Fatal write error on socket transport")
        if self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_exception(error)

    def _sent_all(self) -> None:
        """Continue with the steps that waited until nothing is unsent."""
        if self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_result(None)
        if self._state == states.CLOSING:
            self._schedule_connection_lost(None)
        elif self._eof_written and self._state == states.OPEN:
            code = self._shut_write_side()
            if code < 0:
                self._fatal_error(os_error(code), "Fatal write error on socket transport")

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when nothing is left to send; writing is refused meanwhile."""
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        loop: Any = self._loop
        waiter: asyncio.Future[None] = loop.create_future()
        self._set_empty_waiter(waiter)
        if not self._unsent:
            waiter.set_result(None)
        return waiter

    def _set_empty_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Complete a future when nothing is left to send, or when nothing can be sent any more."""
        self._empty_waiter = waiter
        self._refuses_writes = True

    def _reset_empty_waiter(self) -> None:
        self._empty_waiter = None
        self._refuses_writes = self._eof_written

    # The end.

    def close(self) -> None:  # type: ignore[override]
        """Read no more, send the unsent data, then close the connection."""
        if self._state != states.OPEN:
            return
        self._state = states.CLOSING
        self._stop_reading()
        if not self._unsent:
            self._schedule_connection_lost(None)

    def _leave_poller(self) -> None:
        self._peer_left()
        if self._kind is not None:  # No program has the descriptor, so that its watch ends when it is closed.
            self._poller.forget(self)
        else:
            self._poller.remove(self)

    def _take_over_watch(self, former: IOHandle, seen: int) -> None:
        """Take over the watch of the handle that connected the socket, and the events that it has seen."""
        self._poller.take_over(self, former)
        Stream._on_events(self, seen)  # It is not reading yet, so this only notes what there is.

    def _end(self, error: BaseException | None) -> None:
        try:
            BaseTransport._end(self, error)
        finally:
            self._feed = None  # It knows this transport.
            if self._empty_waiter is not None and not self._empty_waiter.done():
                self._empty_waiter.set_exception(ConnectionError("Connection is closed by peer"))

    def _close_handle(self) -> None:
        """Close the socket and drop all references."""
        self._peer_left()
        if self._fd >= 0:
            loop: Any = self._loop
            table: FdTable = loop._transports
            table.discard(self._fd, self)
        BaseTransport._close_handle(self)
        self._unregister_from_server()

    def _release_now(self) -> None:
        Stream._release(self)

    def __del__(self) -> None:
        # There is nothing to close if the loop refused it.
        if is_made(self) and self._fd >= 0:
            dropped: Any = self
            dropped._was_dropped()

    def _was_dropped(self) -> None:
        """Handle the loss of the last reference to an open transport: a subclass warns, and closes it."""
