"""The machine itself, without asyncio: a TCP echo server and a client of it, with handles and callbacks.

`python examples/machine_tcp_echo.py`
"""

import whorl
from whorl.handles import TCP, Connect, Shutdown, StreamHandle, Write

QUEUE_LIMIT = 256 * 1024  # a peer that does not read what it is sent is read from no more
MESSAGE = b"round it goes " * 100_000


class EchoServer:
    """An echo server for any number of clients."""

    def __init__(self, loop: whorl.Loop) -> None:
        self.tcp = TCP(loop)
        self.tcp.bind(("127.0.0.1", 0))
        self.tcp.listen(128, self._on_connection)

    def _on_connection(self, tcp: TCP, error: OSError | None) -> None:
        if error is not None:
            print("cannot accept now:", error)
            return
        client = TCP(tcp.loop)
        tcp.accept(client)
        client.read_start(self._on_read)

    def _on_read(self, client: StreamHandle, data: bytes, error: OSError | None) -> None:
        if data:
            client.write(data, self._on_written)
            if client.write_queue_size > QUEUE_LIMIT:
                client.read_stop()
        elif error is None:
            client.shutdown(self._on_shutdown)
        else:
            client.close()

    def _on_written(self, write: Write, error: OSError | None) -> None:
        client = write.handle
        if client.is_writable() and not client.is_active():  # it reads no more, but its peer has not ended
            client.read_start(self._on_read)

    def _on_shutdown(self, shutdown: Shutdown, error: OSError | None) -> None:
        shutdown.handle.close()


class Client:
    """Sends a message, ends its side, and collects what comes back."""

    def __init__(self, server: EchoServer) -> None:
        self.server = server
        self.received = bytearray()
        self.tcp = TCP(server.tcp.loop)
        self.tcp.connect(server.tcp.getsockname(), self._on_connect)

    def _on_connect(self, connect: Connect, error: OSError | None) -> None:
        if error is not None:
            raise error
        self.tcp.read_start(self._on_read)
        self.tcp.write(MESSAGE)
        self.tcp.shutdown()

    def _on_read(self, tcp: TCP, data: bytes, error: OSError | None) -> None:
        self.received += data
        if not data:
            tcp.close()
            self.server.tcp.close()


def main() -> None:
    loop = whorl.Loop()
    client = Client(EchoServer(loop))
    loop.run()  # until every handle is closed
    loop.close()
    print(f"{len(MESSAGE):,} bytes sent, and the same came back: {client.received == MESSAGE}")


if __name__ == "__main__":
    main()
