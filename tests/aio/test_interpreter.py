"""Loops and the interpreter around them: its end, its tracers, its debugger, its other interpreters."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

import pytest

import whorl
from tests.aio.programs import end_of, ends_as_on_asyncio, run_program
from tests.aio.sockets_for_tests import turns

# How a program ends.

ENDINGS = {
    "a loop that was never closed": """
loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))
print("end")
""",
    "a loop that module teardown destroys": """
class Keeper:
    def __init__(self):
        self.loop = new_loop()
        self.loop.call_soon(print)
        self.loop.call_later(5, print)
    def __del__(self):
        self.loop.close()
        print("closed late")
keeper = Keeper()
keeper.itself = keeper
print("end")
""",
    "a transport that nobody closed": """
import socket
loop = new_loop()
pair = socket.socketpair()
for sock in pair:
    sock.setblocking(False)
transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=pair[0]))
transport.write(b"data")
print("end")
""",
    "a loop that runs in a daemon thread": """
import threading
loop = new_loop()
running = threading.Event()
loop.call_soon(running.set)
threading.Thread(target=loop.run_forever, daemon=True).start()
running.wait()
print("end")
""",
    "a busy loop in a daemon thread": """
import threading
loop = new_loop()
running = threading.Event()
def again():
    running.set()
    loop.call_soon(again)
loop.call_soon(again)
threading.Thread(target=loop.run_forever, daemon=True).start()
running.wait()
print("end")
""",
    "a job that still runs in the loop's threads": """
import time
loop = new_loop()
def job():
    time.sleep(0.05)
    print("job done", flush=True)
async def main():
    loop.run_in_executor(None, job)
loop.run_until_complete(main())
loop.close()
print("end", flush=True)
""",
    "SystemExit out of a callback": """
import sys
loop = new_loop()
loop.call_soon(sys.exit, 7)
loop.run_forever()
""",
    "SystemExit out of a task": """
import sys
async def main():
    sys.exit(7)
asyncio.Runner(loop_factory=new_loop).run(main())
""",
    "KeyboardInterrupt out of a callback": """
import signal
loop = new_loop()
loop.call_soon(signal.raise_signal, signal.SIGINT)
loop.run_forever()
""",
    "an error in run_until_complete": """
async def main():
    raise LookupError("the end")
new_loop().run_until_complete(main())
""",
    "a signal handler that was left": """
import signal
loop = new_loop()
loop.add_signal_handler(signal.SIGUSR1, print)
print("end")
""",
    "a generator that was never finished": """
loop = new_loop()
async def numbers():
    try:
        yield 1
    finally:
        print("finished")
generator = numbers()
loop.run_until_complete(anext(generator))
print("end")
""",
}


@pytest.mark.parametrize("program", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_as_on_asyncios_loop(program: str) -> None:
    code, printed, complaint = ends_as_on_asyncio("import asyncio\n" + program)
    assert code in (0, 1, 7, -2)
    assert printed or complaint or code
    assert "Fatal" not in complaint


def test_an_open_loop_is_warned_about_at_the_end_of_the_program() -> None:
    answer = run_program("loop = new_loop()", "-X", "dev")
    assert "ResourceWarning: unclosed event loop <EventLoop running=False closed=False" in answer.stderr
    assert answer.returncode == 0


# Ctrl-C and other signals, in a program.

INTERRUPTED = {
    "before the run": """
async def main():
    await asyncio.sleep(20)
try:
    signal.raise_signal(signal.SIGINT)
    asyncio.Runner(loop_factory=new_loop).run(main())
except KeyboardInterrupt:
    print("interrupted")
""",
    "by kill, before the loop sleeps": """
async def main():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        print("cancelled")
        raise
try:
    asyncio.Runner(loop_factory=new_loop).run(main())
except KeyboardInterrupt:
    print("interrupted")
""",
    "once, and the program goes on": """
async def main():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        return "finished all the same"
print(asyncio.Runner(loop_factory=new_loop).run(main()))
""",
    "twice": """
async def main():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        print("cancelled")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(20)
try:
    asyncio.Runner(loop_factory=new_loop).run(main())
except KeyboardInterrupt:
    print("interrupted")
""",
    "while a thread waits": """
import threading
async def main():
    threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGINT]).start()
    await asyncio.sleep(20)
try:
    asyncio.Runner(loop_factory=new_loop).run(main())
except KeyboardInterrupt:
    print("interrupted")
""",
    "with a handler of its own": """
import threading
loop = new_loop()
signal.signal(signal.SIGTERM, lambda number, frame: loop.call_soon_threadsafe(loop.stop))
threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGTERM]).start()
loop.run_forever()
loop.close()
print("stopped by its handler")
""",
    "with a handler of its own that only notes it": """
import threading
class Server:
    should_exit = False
server = Server()
def handle(number, frame):
    server.should_exit = True
signal.signal(signal.SIGTERM, handle)
threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGTERM]).start()
async def main():
    while not server.should_exit:
        await asyncio.sleep(0.01)
asyncio.Runner(loop_factory=new_loop).run(main())
print("saw it")
""",
}


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=INTERRUPTED)
def test_a_program_is_interrupted_as_on_asyncios_loop(program: str) -> None:
    code, printed, _ = ends_as_on_asyncio("import asyncio, os, signal\n" + program)
    assert code == 0
    assert printed


def can_unshare() -> bool:
    """Return whether this system lets us make a namespace of processes."""
    command = shutil.which("unshare")
    if command is None:
        return False
    return subprocess.run([command, "--pid", "--fork", "true"], capture_output=True).returncode == 0


def test_a_program_that_is_process_1_is_ended_by_sigterm() -> None:
    command = shutil.which("unshare")
    if command is None or not can_unshare():
        pytest.skip("this system does not let us start a process 1 (unshare --pid)")
    program = """
import asyncio, os, signal, threading
async def main():
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGTERM]).start()
    await done.wait()
    print("process", os.getpid(), "terminated")
asyncio.Runner(loop_factory=new_loop).run(main())
"""
    answer = run_program(program, before=(command, "--pid", "--fork"))
    assert (answer.returncode, answer.stdout) == (0, "process 1 terminated\n"), answer.stderr


def test_a_service_manager_hands_over_a_listening_socket() -> None:
    """systemd does so: LISTEN_FDS, from descriptor 3 on; the sockets block."""
    program = """
import asyncio, socket
async def main():
    listener = socket.socket(fileno=int(input()))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), sock=listener)
    async with server:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        print(await reader.read(), listener.getblocking())
        writer.close()
asyncio.Runner(loop_factory=new_loop).run(main())
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        code, printed, complaint = end_of(program, input=str(fd), pass_fds=[fd])
    assert (code, printed) == (0, "b'' False\n"), complaint


# Tracers, debuggers, other interpreters.


async def do_something() -> int:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(0, done.set_result, 1)
    answer: int = await done
    await turns(2)
    return answer


def test_a_trace_function_sees_callbacks_and_tasks(loop: whorl.EventLoop) -> None:
    seen: set[str] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        seen.add(f"{event} {frame.f_code.co_name}")
        return trace

    def callback() -> None:
        loop.call_soon(loop.stop)

    before = sys.gettrace()
    loop.call_soon(callback)
    sys.settrace(trace)
    try:
        loop.run_forever()
        loop.run_until_complete(do_something())
    finally:
        sys.settrace(before)
    assert {"call callback", "line callback", "call do_something", "return do_something"} <= seen


def test_a_profile_function_sees_callbacks_and_tasks(loop: whorl.EventLoop) -> None:
    seen: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: seen.append(f"{event} {frame.f_code.co_name}"))
    try:
        loop.run_until_complete(do_something())
    finally:
        sys.setprofile(before)
    assert "call do_something" in seen
    assert "return do_something" in seen


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_monitoring_sees_callbacks_and_tasks(loop: whorl.EventLoop) -> None:
    monitoring = sys.monitoring
    seen: set[str] = set()
    tool = monitoring.DEBUGGER_ID
    monitoring.use_tool_id(tool, "test")
    try:
        events = monitoring.events
        monitoring.register_callback(tool, events.PY_START, lambda code, offset: seen.add(code.co_name))
        monitoring.set_events(tool, events.PY_START | events.PY_YIELD | events.RAISE)
        loop.run_until_complete(do_something())
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert "do_something" in seen


def test_the_debugger_stops_in_callbacks_and_in_tasks() -> None:
    program = """
import asyncio, pdb
loop = new_loop()
def callback():
    inside = "the callback"
    pdb.Pdb(nosigint=True).set_trace()
    return inside
async def task():
    inside = "the task"
    pdb.Pdb(nosigint=True).set_trace()
    await asyncio.sleep(0)
    return inside
loop.call_soon(callback)
loop.run_until_complete(asyncio.sleep(0))
print(loop.run_until_complete(task()))
loop.close()
"""
    code, printed, complaint = end_of(program, input="p inside\nc\np inside\nnext\nc\n")
    assert (code, complaint) == (0, "")
    assert "'the callback'" in printed
    assert "'the task'" in printed
    assert printed.rstrip().endswith("the task")


def test_another_interpreter_can_run_a_loop_or_says_that_it_cannot() -> None:
    program = """
import importlib
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = importlib.import_module(name)
    except ImportError:
        continue
    break
inside = '''
import sys
sys.path[:] = {path!r}
try:
    import whorl
except ImportError as error:
    print("ImportError:", error)
else:
    import asyncio
    loop = whorl.EventLoop()
    print(loop.run_until_complete(asyncio.sleep(0, "ran")))
    loop.close()
'''
import sys
number = interpreters.create()
failed = interpreters.run_string(number, inside.format(path=sys.path))
assert failed is None, failed
interpreters.destroy(number)
"""
    code, printed, complaint = end_of(program)
    assert code == 0, complaint
    refused = re.match(r"ImportError: .*(does not support|can only be loaded into one)", printed)
    assert refused or (not whorl.compiled and printed == "ran\n"), printed


def test_many_loops_come_and_go_in_threads() -> None:
    def run() -> None:
        for _ in range(5):
            results.append(whorl.run(do_something()))

    results: list[int] = []
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 40
