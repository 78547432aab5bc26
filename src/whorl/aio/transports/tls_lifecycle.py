"""The life of a TLS connection: its handshake, its shutdown, its timeouts and errors.

Each step happens once for a connection, in the order of ``asyncio.sslproto``. Compiled, as a program may open
connections all the time. The code that every packet goes through is in `tls.engine` and `tls.write_path`.
"""

from __future__ import annotations

from asyncio import CancelledError, constants
from typing import TYPE_CHECKING, Any

from whorl.aio.tls import states

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

from whorl.aio.interop.at_import import logger
from whorl.aio.streams.adoption import adopted_connection_made
from whorl.aio.tls.engine import TLSEngine
from whorl.aio.tls.records import AGAIN
from whorl.aio.transports.stream import StreamTransport
from whorl.aio.transports.tls_stream import TLSStream
from whorl.core.limits import READ_SIZE

if TYPE_CHECKING:
    import asyncio

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.timers.timed_callback import TimedCallback


class TLSLifecycle(TLSEngine):
    """The steps of a TLS connection that every connection takes once. The user sees `tls.TLSProtocol`."""

    def __init__(
        self,
        loop: AnyLoop,
        sslcontext: Any,
        waiter: asyncio.Future[None] | None,
        server_side: bool,
        server_hostname: str | None,
        call_connection_made: bool,
        ssl_handshake_timeout: float | None,
        ssl_shutdown_timeout: float | None,
    ) -> None:
        if ssl is None:
            raise RuntimeError("stdlib ssl module not available")
        self._handshake_timeout: Any = positive(
            "ssl_handshake_timeout", ssl_handshake_timeout, constants.SSL_HANDSHAKE_TIMEOUT
        )
        self._shutdown_timeout: Any = positive(
            "ssl_shutdown_timeout", ssl_shutdown_timeout, constants.SSL_SHUTDOWN_TIMEOUT
        )
        if not sslcontext:
            sslcontext = default_context(server_side, server_hostname)
        self._sslcontext = sslcontext
        self._extra: dict[str, Any] = {"sslcontext": sslcontext}
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hostname = None if server_side else server_hostname or None
        sslobj = sslcontext.wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=hostname)
        super().__init__(loop, sslobj, incoming, outgoing, scratch_of(loop))
        self._waiter: Any = waiter
        self._app_state = states.INIT if call_connection_made else states.CON_MADE
        self._app_is_connected = not call_connection_made
        self._timer: TimedCallback | None = None
        self._handshake_began = 0.0
        self._is_forgotten = False
        self._app_transport: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact that TLS knows, or else one of the transport underneath."""
        if name in self._extra:
            return self._extra[name]
        if self._transport is not None:
            return self._transport.get_extra_info(name, default)
        return default

    def _is_transport_closing(self) -> bool:
        """Return whether the transport underneath is closed or being closed."""
        return self._transport is not None and bool(self._transport.is_closing())

    def _hear_of_unsent(self) -> None:
        """Let the transport underneath report every unsent byte."""
        if isinstance(self._transport, StreamTransport):
            stream: StreamTransport = self._transport
            stream._report_unsent()

    def _wake_waiter(self, error: BaseException | None) -> None:
        waiter = self._waiter
        self._waiter = None
        if waiter is None or waiter.cancelled():
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(None)

    def _set_timer(self, seconds: Any, callback: Any) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, callback)

    def _cancel_timer(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()

    # The transport underneath.

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake."""
        self._transport = transport
        if self._state != states.CONNECTING:  # The transport was closed before the handshake began.
            self._force_transport(None)
            return
        self._transport_is_ours = isinstance(transport, (StreamTransport, TLSStream))
        if self._transport_is_ours:
            # The transport may have paused its protocol; TLS has to resume it.
            self._transport_paused = self._app_writing_paused = transport._protocol_paused
            if isinstance(transport, StreamTransport):
                self._hear_of_unsent()
            else:
                transport.set_write_buffer_limits(high=0)
        else:
            self._buffer = memoryview(bytearray(READ_SIZE))  # It may fill it when it pleases.
        self._set_state(states.HANDSHAKE)
        if self._loop.get_debug():
            logger.debug("%r starts SSL handshake", self)
            self._handshake_began = self._loop.time()
        self._set_timer(self._handshake_timeout, self._check_handshake_timeout)
        self._handshake()

    def connection_lost(self, error: BaseException | None) -> None:
        """Handle the loss of the transport underneath."""
        if self._in_openssl:
            self._loop.call_soon(self.connection_lost, error)
            return
        protocol = self._app_protocol
        in_handshake = self._state == states.HANDSHAKE
        self._set_state(states.CLOSED)
        self._drop_backlog()
        self._outgoing.read()
        self._lost_writes += 1
        self._closing = True
        if not in_handshake and (self._app_state == states.CON_MADE or self._app_state == states.EOF):
            self._app_state = states.CON_LOST
            self._loop.call_soon(protocol.connection_lost, error)
        self._transport = self._app_transport = self._app_protocol = self._app_feed = None
        self._wake_waiter(error)
        self._cancel_timer()
        if self._is_forgotten:
            self._forget()

    def eof_received(self) -> bool:
        """Handle the end of the peer's writing, with or without close_notify."""
        if self._in_openssl:
            self._refuse_entry()
        self._has_eof = True
        if self._loop.get_debug():
            logger.debug("%r received EOF", self)
        try:
            if self._state == states.HANDSHAKE:
                self._handshake_done(ConnectionResetError())
            else:
                if self._state == states.OPEN:
                    self._set_state(states.FLUSHING)
                self._continue_state()
        except Exception:
            self._transport.close()
            raise
        return self._state == states.FLUSHING  # There is still data to deliver or to send.

    def _continue_state(self) -> None:
        if self._in_openssl:  # A callback of OpenSSL's has closed the connection.
            self._loop.call_soon(self._continue_reading)
        elif self._state == states.HANDSHAKE:
            self._handshake()
        elif self._state == states.FLUSHING:
            self._flush()
        elif self._state == states.SHUTDOWN:
            self._await_close_notify()

    # The handshake.

    def _handshake(self) -> None:
        if self._in_openssl:
            self._refuse_entry()
        try:
            self._in_openssl = True
            try:
                self._records.do_handshake()
            finally:
                self._in_openssl = False
        except AGAIN:
            self._send_backlog()
        except ssl.SSLError as error:
            self._handshake_done(error)
        else:
            self._handshake_done(None)

    def _handshake_done(self, error: BaseException | None) -> None:
        self._cancel_timer()
        if self._state == states.CLOSED:
            return  # A callback of OpenSSL's has aborted.
        peercert: Any = None
        if error is None:
            self._set_state(states.OPEN)
            try:
                peercert = self._records.getpeercert()
            except Exception as failure:  # no `return` here: it crashes if a traceback got no memory
                error = failure
        if error is not None:
            self._handshake_failed(error)
            error = None  # Otherwise the traceback would make a cycle.
            return
        if self._loop.get_debug():
            took = self._loop.time() - self._handshake_began
            logger.debug("%r: SSL handshake took %.1f ms", self, took * 1e3)
        extra = self._extra
        extra["peercert"] = peercert
        extra["cipher"] = self._records.cipher()
        extra["compression"] = self._records.compression()
        extra["ssl_object"] = self._sslobj
        if self._app_state == states.INIT:
            self._app_state = states.CON_MADE
            self._app_is_connected = True
            adopted_connection_made(self._app_protocol)(self._app_transport)
        self._wake_waiter(None)
        # A server's tickets leave with its answer to what came behind the handshake.
        if self._incoming.pending:
            self._continue_reading()
        self._send_backlog()

    def _handshake_failed(self, error: BaseException) -> None:
        if isinstance(error, ssl.SSLError):
            self._loop._failed_handshakes += 1
        self._set_state(states.CLOSED)
        what = " on verifying the certificate" if isinstance(error, ssl.CertificateError) else ""
        self._fatal_error(error, f"SSL handshake failed{what}")
        self._wake_waiter(error)

    def _check_handshake_timeout(self) -> None:
        if self._state == states.HANDSHAKE:
            self._fatal_error(
                ConnectionAbortedError(
                    f"SSL handshake is taking longer than {self._handshake_timeout} seconds: "
                    "aborting the connection"
                )
            )

    # The shutdown.

    def _start_shutdown(self) -> None:
        """Send the unsent data and close_notify, and wait for the peer's close_notify."""
        if self._closing:
            return
        self._closing = True
        if self._state < states.OPEN:
            self._abort(None)
        elif self._state == states.OPEN or self._state == states.FLUSHING:
            if self._state == states.OPEN:
                self._set_state(states.FLUSHING)
            self._set_timer(self._shutdown_timeout, self._check_shutdown_timeout)
            self._continue_state()

    def _peer_finished(self) -> None:
        self._call_eof_received()
        self._start_shutdown()

    def _flush(self) -> None:
        """Deliver and send the waiting data; then send close_notify to the peer."""
        try:
            if self._closing:
                self._discard()
                self._control_reading()
            elif self._app_reading_paused:
                self._control_reading()
                return
            elif not self._read(0):
                return
            self._send_backlog()
            if self._state != states.FLUSHING:
                return
            if self._waiting and not (self._write_blocked and self._has_eof):
                if self._timer is None:
                    self._set_timer(self._shutdown_timeout, self._check_shutdown_timeout)
                return
            self._set_state(states.SHUTDOWN)
            self._send_close_notify()
        except Exception as error:
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _send_close_notify(self) -> None:
        try:
            if not self._has_eof:
                if self._in_openssl:
                    self._refuse_entry()
                self._in_openssl = True
                try:
                    if self._records is self._sslobj:
                        self._sslobj.unwrap()
                    else:
                        self._records.shutdown()
                finally:
                    self._in_openssl = False
        except AGAIN:
            self._send_backlog()
        except ssl.SSLError as error:
            self._fatal_error(error)
        else:
            if self._state == states.SHUTDOWN:  # unless a callback of OpenSSL's has aborted
                self._shutdown_done()

    def _await_close_notify(self) -> None:
        """Handle input after our close_notify: more data, which is dropped, or the peer's close_notify."""
        try:
            if self._has_eof or self._discard():
                self._shutdown_done()
        except ssl.SSLError as error:
            self._fatal_error(error)

    def _shutdown_done(self) -> None:
        self._set_state(states.CLOSED)
        self._send_outgoing()
        self._call_eof_received()
        if self._timer is None:
            self._set_timer(self._shutdown_timeout, self._check_shutdown_timeout)
        if self._transport is not None:
            self._loop.call_soon(self._transport.close)

    def _check_shutdown_timeout(self) -> None:
        if self._transport is not None:
            self._force_transport(TimeoutError("SSL shutdown timed out"))

    def _call_eof_received(self) -> None:
        if self._app_state != states.CON_MADE:
            return
        self._app_state = states.EOF
        try:
            if self._app_protocol.eof_received():
                logger.warning("returning true from eof_received() has no effect when using ssl")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._fatal_error(error, "Error calling eof_received()")

    def _forget(self) -> None:
        """Drop the context and the known facts about the connection: no code waits for them any more.

        asyncio does this at the second `close`. A protocol that keeps its transport would keep them.
        """
        self._is_forgotten = True
        if self._state == states.CLOSED:
            self._extra.clear()
            self._sslcontext = self._sslobj = self._records = None

    # Errors.

    def _abort(self, error: BaseException | None) -> None:
        """Close the connection at once."""
        self._closing = True
        self._set_state(states.CLOSED)
        self._force_transport(error)

    def _force_transport(self, error: BaseException | None) -> None:
        """End the connection of the transport underneath, with this error if the transport allows it."""
        transport = self._transport
        if transport is None:
            return
        force = getattr(transport, "_force_close", None)
        if force is not None:
            force(error)
        else:
            transport.abort()

    def _send_alert(self) -> None:
        """Send what OpenSSL tells the peer of an error. This is tried once, and never waited for."""
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._send_outgoing()
        except Exception as failure:  # by a transport of the program's, which is ended anyway
            logger.debug("%r: no alert was sent", self, exc_info=failure)

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        transport = self._transport
        if self._state != states.HANDSHAKE:
            self._set_state(states.CLOSED)
        if isinstance(error, ssl.SSLError):
            self._send_alert()
        self._force_transport(error)
        if isinstance(error, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=error)
        elif not isinstance(error, CancelledError):
            self._report(error, message, transport)

    def _report(self, error: BaseException, message: str, transport: Any = None) -> None:
        if transport is None:
            transport = self._app_transport
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": transport, "protocol": self}
        )


def positive(name: str, seconds: float | None, default: float) -> float:
    """Return a timeout, in seconds; raise ValueError unless it is positive."""
    if seconds is None:
        return default
    if seconds <= 0:
        raise ValueError(f"{name} should be a positive number, got {seconds}")
    return seconds


def default_context(server_side: bool, server_hostname: str | None) -> Any:
    """Return the context for ``ssl=True``: a client that trusts the system's certificates."""
    if server_side:
        raise ValueError("Server side SSL needs a valid SSLContext")
    context = ssl.create_default_context()
    if not server_hostname:
        context.check_hostname = False
    return context


def scratch_of(loop: Any) -> memoryview:
    """Return the buffer that all TLS connections of a loop share."""
    scratch: memoryview | None = loop._tls_scratch
    if scratch is None:
        scratch = loop._tls_scratch = memoryview(bytearray(READ_SIZE))
    return scratch
