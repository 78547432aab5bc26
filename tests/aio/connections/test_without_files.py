"""Servers that are bound go on when the program has lost its files: each kind of server, in each way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from tests.aio.tls_contexts import CERTIFICATE
from tests.children import bare_environment

pytestmark = pytest.mark.usefixtures("no_hang")

PROGRAM = """
import asyncio, encodings.idna, errno, io, logging, os
import resource, shutil, socket, ssl, sys, tempfile, threading
try:
    import _colorize  # for the texts of errors, which Python imports late since 3.15
except ImportError:
    pass
import whorl
from whorl import new_event_loop, server_loop

way, copy, certificate, factory = sys.argv[1:]
server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server_side.load_cert_chain(certificate)
client_side = ssl.create_default_context(cafile=certificate)
file = tempfile.TemporaryFile()
file.write(b"a file")
file.flush()
log = io.StringIO()
logging.basicConfig(stream=log)
late = []
fillers = []


class Protocol(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.writelines([data.upper(), b"+"])
        self.transport.close()


class Buffered(asyncio.BufferedProtocol):
    def connection_made(self, transport):
        self.transport, self.buffer = transport, bytearray(99)

    def get_buffer(self, size):
        return self.buffer

    def buffer_updated(self, size):
        self.transport.write(bytes(self.buffer[:size]) * 100_000)
        self.transport.close()


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(data.upper(), address)


class Reads(asyncio.Protocol):
    def data_received(self, data):
        self.other.write(data.upper())


async def by_lines(reader, writer):
    line = await reader.readuntil(b"\\n")
    writer.write(line * 1000)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def by_start_tls(reader, writer):
    await reader.readline()
    writer.write(b"ok\\n")
    await writer.start_tls(server_side)
    writer.write(b"secret")
    writer.close()


async def by_sendfile(reader, writer):
    await reader.readline()
    await asyncio.get_running_loop().sendfile(writer.transport, file, 0)
    writer.close()


def received(sock):
    data = b""
    while more := sock.recv(65536):
        data += more
    return data


def ask(kind, sock):
    with sock:
        sock.settimeout(20)
        if kind == "udp":
            sock.send(b"hi")
            return sock.recv(99)
        if "tls" in kind and kind != "start_tls":
            sock = client_side.wrap_socket(sock, server_hostname="localhost")
        sock.sendall(b"hi\\n")
        if kind == "start_tls":
            sock.recv(3)
            sock = client_side.wrap_socket(sock, server_hostname="localhost")
        with sock:
            data = received(sock)
    return data[:9], len(data)


async def in_thread(function, *args):
    # The client stands for another process. Executors are imported late, as on asyncio.
    loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def work():
        try:
            answered = function(*args)
        except Exception as error:
            answered = repr(error)
        loop.call_soon_threadsafe(answer.set_result, answered)

    threading.Thread(target=work).start()
    return await answer


def give_up_files():
    if way == "chroot":
        os.chroot(tempfile.mkdtemp())
        os.chdir("/")
    elif way == "setuid":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    elif way == "deleted":
        shutil.rmtree(copy)
    elif way == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        fill()


def fill():
    try:
        while way == "descriptors":
            fillers.append(os.dup(0))
    except OSError:
        pass


def free(count):
    for fd in fillers[:count]:
        os.close(fd)
    del fillers[:count]


def note(event, args):
    if event == "import":
        late.append(args[0])


async def main():
    loop = asyncio.get_running_loop()
    reports = []
    host, port = "127.0.0.1", 0
    servers = {
        "protocol": await loop.create_server(Protocol, host, port),
        "buffered": await loop.create_server(Buffered, host, port),
        "stream": await asyncio.start_server(by_lines, host, port),
        "tls": await loop.create_server(Protocol, host, port, ssl=server_side),
        "tls buffered": await loop.create_server(Buffered, host, port, ssl=server_side),
        "tls stream": await asyncio.start_server(by_lines, host, port, ssl=server_side),
        "start_tls": await asyncio.start_server(by_start_tls, host, port),
        "sendfile": await asyncio.start_server(by_sendfile, host, port),
        "unix": await loop.create_unix_server(Protocol, "\\0" + os.urandom(8).hex()),
        "unix stream": await asyncio.start_unix_server(by_lines, "\\0" + os.urandom(8).hex()),
        "whorl stream": await whorl.start_server(by_lines, host, port),
    }
    endpoint, _ = await loop.create_datagram_endpoint(Datagrams, (host, port))
    read_end, other_end = (os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb")))
    other_read_end, write_end = (os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb")))
    reading, protocol = await loop.connect_read_pipe(Reads, read_end)
    protocol.other, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, write_end)
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    give_up_files()
    sys.addaudithook(note)
    for kind, server in servers.items():
        name = server.sockets[0].getsockname()
        free(2)
        client = socket.socket(socket.AF_INET if isinstance(name, tuple) else socket.AF_UNIX)
        client.connect(name)  # Its connection waits, and there is one descriptor for it.
        print(kind, await in_thread(ask, kind, client))
        await asyncio.sleep(0)
        fill()
    free(1)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(endpoint.get_extra_info("sockname"))
    print("udp", await in_thread(ask, "udp", client))
    other_end.write(b"through pipes")
    print("pipes", await in_thread(other_read_end.read, 99))
    # To see that no connection is left needs a descriptor, too, where a socket object accepts.
    print("reports", [each for each in reports if getattr(each["exception"], "errno", 0) != errno.EMFILE])
    # An error is reported by what is there.
    loop.set_exception_handler(None)
    loop.call_soon(lambda: 1 / 0)
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.set_debug(False)
    print("logged", "ZeroDivisionError" in log.getvalue(), "Executing" in log.getvalue())
    print("imported", late)
    for thing in (*servers.values(), endpoint, reading, protocol.other, file, other_end, other_read_end):
        thing.close()
    await asyncio.sleep(0)


with asyncio.Runner(loop_factory=lambda: eval(factory)) as runner:
    runner.run(main())
print("ended")
"""
ANSWERS = """\
protocol (b'HI\\n+', 4)
buffered (b'hi\\nhi\\nhi\\n', 300000)
stream (b'hi\\nhi\\nhi\\n', 3000)
tls (b'HI\\n+', 4)
tls buffered (b'hi\\nhi\\nhi\\n', 300000)
tls stream (b'hi\\nhi\\nhi\\n', 3000)
start_tls (b'secret', 6)
sendfile (b'a file', 6)
unix (b'HI\\n+', 4)
unix stream (b'hi\\nhi\\nhi\\n', 3000)
whorl stream (b'hi\\nhi\\nhi\\n', 3000)
udp b'HI'
pipes b'THROUGH PIPES'
reports []
logged True True
imported []
ended
"""
NEEDS_ROOT = ("chroot", "setuid")
FACTORIES = ("new_event_loop()", "server_loop()", "new_event_loop(tasks='compiled')")


def run_without_files(way: str, folder: Path, factory: str) -> str:
    """Run the program with a copy of Whorl, in a folder that only this user may enter."""
    if way in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root may do this")
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    copy = shutil.copytree(Path(whorl.__file__).parent, hidden / "whorl")
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, hidden, CERTIFICATE, factory],
        env=bare_environment(PYTHONPATH=str(copy.parent), PYTHONDONTWRITEBYTECODE="1"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=25,
    )
    return answer.stdout + answer.stderr


@pytest.mark.parametrize("way", ["chroot", "setuid", "deleted", "descriptors"])
def test_servers_serve_when_the_program_has_lost_its_files(way: str, tmp_path: Path) -> None:
    assert run_without_files(way, tmp_path, FACTORIES[0]) == ANSWERS


@pytest.mark.parametrize("factory", FACTORIES[1:])
def test_servers_of_other_loops_serve_without_files(factory: str, tmp_path: Path) -> None:
    assert run_without_files("deleted", tmp_path, factory) == ANSWERS
