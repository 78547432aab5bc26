"""After `whorl.preload` a program imports nothing any more, whatever its loops do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.aio.tls_contexts import CERTIFICATE
from tests.children import bare_environment
from tests.source_trees import all_sources

LOADED = ("whorl.core", "whorl.handles", "whorl.aio", "whorl.fs")
# Everything is used for the first time after all files are gone; without root's rights, they stay.
PROGRAM = """
import asyncio, io, logging, os, signal, socket, ssl, sys, tempfile, threading, time, selectors
import whorl

certificate, folder = sys.argv[1:]
server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server_side.load_cert_chain(certificate)
client_side = ssl.create_default_context(cafile=certificate)
logging.basicConfig(stream=io.StringIO())
controller, controlled = os.openpty()
late = []


def note(event, args):
    if event == "import":
        late.append(args[0])


async def answer(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def ask(streams):
    reader, writer = await streams
    writer.write(b"line\\n")
    assert await reader.read() == b"line\\n"
    writer.close()
    await writer.wait_closed()


async def connections():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await ask(asyncio.open_connection("127.0.0.1", port))
    await ask(whorl.open_connection("127.0.0.1", port))
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    await ask(asyncio.open_connection("127.0.0.1", port))
    loop.set_debug(False)
    server.close()
    server = await asyncio.start_unix_server(answer, "\\0" + os.urandom(8).hex())
    await ask(asyncio.open_unix_connection(server.sockets[0].getsockname()))
    server.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]
    await ask(asyncio.open_connection("127.0.0.1", port, ssl=client_side, server_hostname="localhost"))
    server.close()


async def start_tls_and_sendfile():
    async def serve(reader, writer):
        await reader.readline()
        await writer.start_tls(server_side)
        await asyncio.get_running_loop().sendfile(writer.transport, io.BytesIO(b"bytes"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"line\\n")
    await writer.start_tls(client_side, server_hostname="localhost")
    assert await reader.read() == b"bytes"
    writer.close()
    server.close()


async def datagrams():
    loop = asyncio.get_running_loop()
    there, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
    here, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=there.get_extra_info("sockname")
    )
    here.sendto(b"message")
    repr(here)
    here.close()
    there.abort()


async def pipes_and_programs():
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    reading, _ = await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(read_end, "rb", 0))
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_end, "wb", 0))
    writing.write(b"bytes")
    writing.close()
    reading.close()
    for start in (asyncio.create_subprocess_exec("/none"), asyncio.create_subprocess_shell("none")):
        try:
            await (await start).wait()
        except OSError:
            pass


async def threads_and_names():
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(int) == 0
    for host in ("127.0.0.1", "localhost"):
        try:
            await loop.getaddrinfo(host, 80)
            await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
        except OSError:
            pass


async def descriptors():
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    seen = asyncio.Event()
    loop.add_reader(ours, seen.set)
    await loop.sock_sendall(theirs, b"bytes")
    await seen.wait()
    loop.remove_reader(ours)
    loop.add_writer(ours, seen.clear)
    loop.remove_writer(ours)
    assert await loop.sock_recv(ours, 99) == b"bytes"
    await loop.sock_sendfile(theirs, io.BytesIO(b"bytes"), fallback=True)
    assert await loop.sock_recv_into(ours, bytearray(9)) == 5
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        listener.setblocking(False)
        client.setblocking(False)
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        await loop.sock_connect(client, listener.getsockname())
        (await accepting)[0].close()
    ours.close()
    theirs.close()
    seen.clear()
    loop.add_signal_handler(signal.SIGUSR1, seen.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await seen.wait()
    loop.remove_signal_handler(signal.SIGUSR1)
    for watched in (loop._selector.get_map(),):
        list(watched.values())


async def errors():
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(lambda: undefined)
    loop.call_later(0, lambda: None.undefined)
    asyncio.ensure_future(asyncio.sleep(0))
    await asyncio.sleep(0.001)
    loop.set_debug(False)
    failed = loop.create_future()
    failed.set_exception(ValueError("lost"))
    del failed

    async def generate():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)

    async for _ in generate():
        break
    loop.metrics(), loop.histograms(), loop.utilization(), repr(loop)


def machine():
    from whorl import handles

    loop = whorl.Loop()
    for kind in (handles.Timer, handles.Idle, handles.Prepare, handles.Check, handles.Signal, handles.TCP):
        kind(loop).close()
    handles.Async(loop, print).close()
    udp = handles.UDP(loop)
    udp.bind(("127.0.0.1", 0))
    udp.connect(udp.getsockname())
    udp.disconnect()
    udp.close()
    for kind, interval in ((handles.FsEvent, ()), (handles.FsPoll, (10**9,))):
        watch = kind(loop)
        watch.start("/", *interval, lambda *args: None)
        watch.close()
    server = handles.Pipe(loop)
    server.bind("\\0" + os.urandom(8).hex())
    server.listen(1, lambda *args: None)
    server.close()
    for ask in (handles.fs.stat, handles.fs.statfs):
        ask(loop, "/", lambda *args: None)
    handles.getaddrinfo(loop, "127.0.0.1", 80, lambda *args: None)
    handles.getnameinfo(loop, ("127.0.0.1", 80), lambda *args: None)
    handles.Random(loop, 8, lambda *args: None)
    program = handles.Process(loop)
    try:
        program.spawn(["/none"])
    except OSError:
        program.close()
    handles.guess_handle(controller)
    terminal = handles.TTY(loop)
    try:
        terminal.open(controller)
    except OSError:  # There is no /dev any more.
        pass
    loop._kernel.terminal_settings(controlled)
    loop._kernel.terminal_size(controlled)
    terminal.close()
    loop.run()
    loop.close()


async def files():
    async with await whorl.fs.open("/text", "w", encoding="utf-8") as file:
        await file.write("line\\n")
    async with await whorl.fs.open("/text", encoding="latin-1") as file:
        assert await file.read() == "line\\n"
    fd, path = await whorl.fs.mkstemp()
    os.close(fd)
    await whorl.fs.remove(path)
    await whorl.fs.rmdir(await whorl.fs.mkdtemp())
    await whorl.fs.listdir("/")
    await whorl.fs.stat("/text")
    await whorl.fs.remove("/text")


def other_loops():
    for loop in (
        whorl.new_event_loop(tasks="compiled"), whorl.server_loop(),
        whorl.EventLoop(selectors.SelectSelector()),
    ):
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    with whorl.Driver(whorl.EventLoop()) as driver:
        driver.step()
        driver.loop.close() if hasattr(driver, "loop") else None
    with whorl.Runner() as runner:
        runner.run(asyncio.sleep(0))
    whorl.run(asyncio.sleep(0), debug=True)


async def inspected():
    with whorl.inspector.start(socket=False, recording=False, threshold=0.001) as inspector:
        time.sleep(0.02)
        await asyncio.sleep(0.01)
        inspector.tasks(), inspector.tree(), inspector.handles(), inspector.stalls


async def main():
    for each in (connections, start_tls_and_sendfile, datagrams, pipes_and_programs, threads_and_names):
        await each()
    for each in (descriptors, errors, files, inspected):
        await each()


whorl.preload()
if os.geteuid() == 0:
    os.chroot(folder)
    os.chdir("/")
    os.mkdir("/tmp")
    tempfile.tempdir = "/tmp"
sys.addaudithook(note)
whorl.run(main())
machine()
other_loops()
for name in whorl.__all__:
    getattr(whorl, name)
print(late)
"""


def test_a_program_imports_nothing_after_preload(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, CERTIFICATE, tmp_path],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stdout + answer.stderr == "[]\n"


def test_each_module_that_a_function_of_a_loop_imports_is_there_after_preload() -> None:
    names = {
        each.name
        for source in all_sources()
        for each in source.imports()
        if source.name.startswith(LOADED) and each.is_late and not each.is_for_types
    }
    code = "import sys, whorl; whorl.preload(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert len(names) > 10
    assert [name for name in sorted(names) if not {name, name.rpartition(".")[0]} & set(loaded)] == []
    rooms = {source.name for source in all_sources() if source.name.startswith(LOADED)}
    assert rooms <= set(loaded)


def test_preload_may_be_called_twice() -> None:
    code = "import sys, whorl; whorl.preload(); before = set(sys.modules)"
    again = "; whorl.preload(); print(before == set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code + again], text=True) == "True\n"
