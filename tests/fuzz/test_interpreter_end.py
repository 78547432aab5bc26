"""A program may end with anything alive, in any state and in any thread: it ends, and does not crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

from build_tools.sources import ROOT

START = """
import asyncio, atexit, gc, os, signal, socket, sys, threading, time, weakref
import whorl
loop = whorl.EventLoop()
machine = whorl.Loop()
pair = socket.socketpair()
for sock in pair:
    sock.setblocking(False)
async def connect():
    return (await loop.connect_accepted_socket(asyncio.Protocol, pair[0]))[0]
"""

SCENES = {
    "a transport with bytes to send": "t = loop.run_until_complete(connect()); t.write(bytes(10_000_000))",
    "a transport that is closing": """
t = loop.run_until_complete(connect()); t.write(bytes(10_000_000)); t.close()""",
    "a transport that is lost": "t = loop.run_until_complete(connect()); t.abort()",
    "a closed loop with a transport": "t = loop.run_until_complete(connect()); loop.close()",
    "tasks in the middle of something": """
async def wait():
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(1000)
tasks = [loop.create_task(wait()) for _ in range(10)]
loop.call_soon(loop.stop); loop.run_forever()""",
    "handles of every kind": """
kinds = whorl.handles
handles = [kind(machine) for kind in (kinds.Timer, kinds.Idle, kinds.Prepare, kinds.Check, kinds.Async)]
for handle in handles[:4]:
    handle.start(print, 1) if handle is handles[0] else handle.start(print)
handles += [kinds.TCP(machine), kinds.Pipe(machine), kinds.UDP(machine), kinds.Poll(machine, pair[0])]
handles[5].listen(1, print); handles[7].recv_start(print); handles[8].start(1, print)
work = kinds.Work(machine, lambda: time.sleep(1000), print)""",
    "handles that watch": """
import pty
kinds = whorl.handles
kinds.Signal(machine).start(10, print)
kinds.FsEvent(machine).start("/tmp", print); kinds.FsPoll(machine).start("/tmp", 1, print)
tty = kinds.TTY(machine); tty.open(pty.openpty()[1]); tty.set_mode(kinds.TTYMode.RAW); tty.read_start(print)
ends = [kinds.Pipe(machine, ipc=True) for _ in pair]
for end, sock in zip(ends, socket.socketpair()):
    end.open(sock.detach())
ends[0].write2(b"x", ends[1])
ends[1].read_start(lambda *a: None)
machine.run(whorl.RunMode.NOWAIT)
random = kinds.Random(machine, 10**8, print)""",
    "signals until the very end": """
import signal, threading
handle = whorl.handles.Signal(loop); handle.start(signal.SIGUSR1, lambda handle, number: None)
def send():
    while True:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.0001)
threading.Thread(target=send, daemon=True).start()
loop.call_later(0.01, loop.stop); loop.run_forever()
atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)""",
    "handles that are closing": """
handle = whorl.handles.Timer(machine); handle.close(lambda handle: print("never"))""",
    "finalizers that raise and bring things back": """
class Zombie:
    def __del__(self):
        global brought_back
        brought_back = self
        self.loop.call_soon(print)
        raise ValueError
zombie = Zombie(); zombie.loop = loop; zombie.me = zombie; loop.call_soon(print, zombie)
handle = whorl.handles.Timer(machine); handle.data = zombie; zombie.handle = handle""",
    "exits in a callback": "loop.call_soon(sys.exit, 0); loop.run_forever()",
    "exits in a callback of the machine": """
timer = whorl.handles.Timer(machine); timer.start(lambda timer: sys.exit(0), 0); machine.run()""",
    "leaves without a word": "loop.call_soon(os._exit, 0); loop.run_forever()",
    "a loop that runs at exit": """
def late():
    loop.call_soon(loop.stop); loop.run_forever(); loop.close()
    machine.run(); machine.close()
atexit.register(late)""",
    "a loop made at exit": "atexit.register(lambda: whorl.run(asyncio.sleep(0)))",
    "threads that post": """
poke = whorl.handles.Async(machine)
def post():
    while True:
        try:
            loop.call_soon_threadsafe(int); poke.send()
        except RuntimeError:
            pass
for _ in range(3):
    threading.Thread(target=post, daemon=True).start()
loop.call_later(0.02, loop.stop); loop.run_forever(); loop.close()""",
    "threads that run loops": """
started = threading.Barrier(4)
def run():
    mine = whorl.EventLoop(); mine.call_soon(started.wait); mine.call_later(0, mine.call_later, 1000, print)
    mine.run_forever()
for _ in range(3):
    threading.Thread(target=run, daemon=True).start()
started.wait()""",
    "the executor at work": """
loop.call_soon(loop.stop); future = loop.run_in_executor(None, time.sleep, 0.05); loop.run_forever()""",
    "an asynchronous generator half way": """
async def numbers():
    try:
        yield 1
    finally:
        await asyncio.sleep(0)
generator = numbers(); loop.run_until_complete(generator.__anext__())""",
    "signal handlers": "loop.add_signal_handler(signal.SIGUSR1, print); os.kill(os.getpid(), signal.SIGUSR1)",
    "readers and a cycle through everything": """
class Everything: pass
all = Everything(); all.loop = loop; all.all = all; all.machine = machine
loop.add_reader(pair[0], all.__init__); loop.set_exception_handler(lambda *a: all)
all.handle = whorl.handles.Poll(machine, pair[1]); all.handle.start(1, lambda *a: all); all.handle.data = all
del all, loop, machine, connect""",
    "modules that are taken away": """
t = loop.run_until_complete(connect())
for name in [name for name in sys.modules if name.startswith("whorl")]:
    del sys.modules[name]
gc.collect()""",
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_program_ends_whatever_is_alive(scene: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", START + SCENES[scene]]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stderr


CLOSING = """
import threading, whorl

posted = refused = 0
def post(loop, go):
    global posted, refused
    go.wait()
    for _ in range(50):
        try:
            loop.call_soon_threadsafe(int)
            posted += 1
        except RuntimeError:
            refused += 1
            break
for number in range(300):
    loop = whorl.EventLoop()
    poke = whorl.handles.Async(loop)
    go = threading.Event()
    threads = [threading.Thread(target=post, args=(loop, go)) for _ in range(2)]
    threads.append(threading.Thread(target=lambda: [poke.send() for _ in range(50) if go.wait()]))
    for thread in threads:
        thread.start()
    poke.close()
    go.set()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    for thread in threads:
        thread.join()
print(posted, refused)
"""


def test_threads_that_post_to_a_loop_while_it_is_closed_are_refused_and_nothing_else() -> None:
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", CLOSING]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr
