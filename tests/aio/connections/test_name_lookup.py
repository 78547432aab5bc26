"""Names that are looked up without an executor; and with it, wherever a program could tell."""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import socket
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import SOURCES
from tests.aio.programs import run_program

STREAM = socket.SOCK_STREAM
compiled_only = pytest.mark.skipif(not whorl.compiled, reason="uncompiled, the executor looks names up")
pytestmark = pytest.mark.usefixtures("no_leak")


def ask(loop: Any, host: Any = "localhost", **options: Any) -> Any:
    """Return the answer of a loop to a question about a name."""
    return loop.run_until_complete(loop.getaddrinfo(host, 80, **{"type": STREAM, **options}))


def finish(loop: Any) -> None:
    """End the threads of a loop, and close it."""
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@compiled_only
def test_a_name_needs_no_executor() -> None:
    loop = whorl.EventLoop()
    assert ask(loop) == socket.getaddrinfo("localhost", 80, type=STREAM)
    assert loop._default_executor is None
    loop.close()


def test_a_name_is_looked_up_beside_the_loops_own_executor() -> None:
    loop = whorl.EventLoop()
    loop.run_until_complete(loop.run_in_executor(None, int))
    assert ask(loop) == socket.getaddrinfo("localhost", 80, type=STREAM)
    loop.run_until_complete(loop.shutdown_default_executor())
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        ask(loop)
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.getaddrinfo("localhost", 80).send(None)


def test_many_names_are_looked_up_at_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked = [loop.getaddrinfo("localhost", port, type=STREAM) for port in range(1, 301)]
        answers = await asyncio.gather(*asked)
        assert [answer[0][4][1] for answer in answers] == list(range(1, 301))

    loop = whorl.EventLoop()
    loop.run_until_complete(main())
    finish(loop)


class Counting(concurrent.futures.ThreadPoolExecutor):
    """An executor that counts its jobs."""

    jobs = 0

    def submit(self, *args: Any, **options: Any) -> Any:
        self.jobs += 1
        return super().submit(*args, **options)


@pytest.mark.parametrize("kind", [Counting, concurrent.futures.ThreadPoolExecutor])
def test_an_executor_of_the_programs_is_asked(kind: Any) -> None:
    loop = whorl.EventLoop()
    with kind(1) as executor:
        loop.set_default_executor(executor)
        ask(loop)
        assert len(executor._threads) == 1
        finish(loop)


@pytest.mark.parametrize("place", ["subclass", "class", "instance"])
def test_a_replaced_run_in_executor_is_asked(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def run(loop: Any, executor: Any, function: Any, *args: Any) -> Any:
        calls.append(args[:2])
        future = loop.create_future()
        future.set_result(["answer"])
        return future

    class Subclass(whorl.EventLoop):
        if place == "subclass":
            run_in_executor = run

    loop: Any = Subclass() if place == "subclass" else whorl.EventLoop()
    if place == "class":
        monkeypatch.setattr(whorl.EventLoop, "run_in_executor", run)
    if place == "instance":
        loop.run_in_executor = run.__get__(loop)
    assert ask(loop) == ["answer"]
    assert calls == [("localhost", 80)]
    loop.close()


def test_a_replaced_function_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = whorl.EventLoop()
    ask(loop)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: ["answer", *question])
    assert ask(loop) == ["answer", "localhost", 80, 0, STREAM, 0, 0]
    finish(loop)


WRONG: list[dict[str, Any]] = [{"family": 99}, {"flags": 1 << 40}, {"proto": "x"}, {"flags": -1}]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_wrong_question_is_refused_as_by_the_socket_module(options: dict[str, Any]) -> None:
    loop = whorl.EventLoop()
    with pytest.raises((OSError, OverflowError, TypeError)) as expected:
        socket.getaddrinfo("localhost", 80, **{"type": STREAM, **options})
    with pytest.raises(expected.type) as found:
        ask(loop, **options)
    assert (str(found.value), found.value.args) == (str(expected.value), expected.value.args)
    finish(loop)


def test_an_audit_hook_sees_each_question() -> None:
    program = """
import sys
seen = []
def hook(event, args):
    if event == "socket.getaddrinfo":
        seen.append(args)
        if args[0] == "forbidden":
            raise PermissionError("no")
loop = new_loop()
sys.addaudithook(hook)
loop.run_until_complete(loop.getaddrinfo("localhost", "80"))
try:
    loop.run_until_complete(loop.getaddrinfo("forbidden", 80, family=4, type=1, proto=2, flags=3))
except PermissionError as error:
    print(error, seen)
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""
    answer = run_program(program)
    assert answer.stdout == run_program(program, loop="asyncio").stdout
    assert answer.stdout.startswith("no [('localhost', "), answer.stderr


# A C library whose look-ups take as long as a test wants: "hang" writes a byte to descriptor 8 and has no
# answer, "gate" has none until a byte comes by descriptor 9, and "broken" fails as a system call does.
SLOW_LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **answer) {
    char byte;
    if (host && strcmp(host, "hang") == 0 && write(8, "x", 1) == 1)
        for (;;)
            pause();
    if (host && strcmp(host, "gate") == 0) {
        if (read(9, &byte, 1) != 1)
            return EAI_FAIL;
        host = "localhost";
    }
    if (host && strcmp(host, "broken") == 0) {
        errno = EMFILE;
        return EAI_SYSTEM;
    }
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, port, hints, answer);
}
"""
BEGINNING = """
import asyncio, gc, os, signal, socket, threading, warnings
read_end, gate = os.pipe()
os.dup2(gate, 8)
os.dup2(read_end, 9)
def threads():
    return len(os.listdir("/proc/self/task"))
def descriptors():
    return len(os.listdir("/proc/self/fd"))
async def ask(host="localhost"):
    rows = await asyncio.get_running_loop().getaddrinfo(host, 80, type=socket.SOCK_STREAM)
    return rows[-1][4][1]
async def begin(*hosts):
    tasks = [asyncio.ensure_future(ask(host)) for host in hosts]
    await asyncio.sleep(0)
    for task in tasks:
        task._log_destroy_pending = False
    return tasks
loop = new_loop()
run = loop.run_until_complete
"""
#: Programs, each with its output.
PROGRAMS = {
    "the loop runs on while a name is looked up": """
async def main():
    task, = await begin("gate")
    for _ in range(100):
        await asyncio.sleep(0)
    print(task.done())
    os.write(gate, b"x")
    print(await task)
run(main())
loop.close()
#: False
#: 80
""",
    "an error of the system is an OSError": """
try:
    run(ask("broken"))
except OSError as error:
    print(type(error).__name__, error)
loop.close()
#: OSError [Errno 24] Too many open files
""",
    "a look-up that is given up is not waited for": """
async def main():
    task, = await begin("gate")
    task.cancel()
    print(len((await asyncio.wait([task]))[0]), task.cancelled())
    os.write(gate, b"x")
    print(await ask())
run(main())
loop.close()
#: 1 True
#: 80
""",
    "queued look-ups that are given up are not done": """
async def main():
    tasks = await begin(*["gate"] * 80)
    for task in tasks[20:]:
        task.cancel()
    await asyncio.sleep(0)
    os.write(gate, b"x" * 50)
    print(await asyncio.gather(*tasks[:20]) == [80] * 20, await ask())
run(main())
loop.close()
#: True 80
""",
    "a loop is closed while names are looked up": """
before = descriptors()
run(begin(*["gate"] * 40))
loop.close()
os.write(gate, b"x" * 40)
while threads() > 1 or descriptors() >= before:
    os.sched_yield()
loop = new_loop()
print(loop.run_until_complete(ask()))
loop.close()
#: 80
""",
    "no thread is left once all loops are closed": """
warnings.simplefilter("error")
run(begin(*["localhost"] * 40))
run(ask())
other = new_loop()
other.run_until_complete(ask())
loop.close()
print(threads() > 1)
other.close()
while threads() > 1:  # Nobody waits for them.
    os.sched_yield()
if os.fork() == 0:
    os._exit(0)
os.wait()
#: True
""",
    "an interpreter ends while a name is looked up": """
run(begin("hang"))
os.read(9, 1)  # It is under way.
loop.close()
print(threads())
#: 2
""",
    "a forked child looks names up": """
warnings.simplefilter("ignore")
tasks = run(begin(*["gate"] * 40))
if (child := os.fork()) == 0:
    fresh = new_loop()
    print(fresh.run_until_complete(ask()), flush=True)
    fresh.close()
    loop.fork()
    print(run(ask()), flush=True)
    loop.close()
    os._exit(0)
print(os.waitpid(child, 0)[1])
os.write(gate, b"x" * 40)
print(len(run(asyncio.wait(tasks))[0]))
loop.close()
#: 80
#: 80
#: 0
#: 40
""",
    "a thread gets no signal": """
run(begin("gate"))
for thread in os.listdir("/proc/self/task"):
    if int(thread) != os.getpid():
        with open(f"/proc/self/task/{thread}/status") as status:
            blocked = next(line.split()[1] for line in status if line.startswith("SigBlk"))
        print(int(blocked, 16) >> (signal.SIGUSR1 - 1) & 1)
os.write(gate, b"x")
run(ask())
loop.close()
#: 1
""",
    "a loop that was never closed leaves nothing": """
warnings.simplefilter("ignore")
before = descriptors()
run(ask())
del loop, run
gc.collect()
print(descriptors() < before, threads())
#: True 1
""",
    "threads that hang are counted over all loops": """
most = min(32, os.cpu_count() + 4)
run(begin(*["gate"] * 40))
loop.close()
for _ in range(20):
    other = new_loop()
    other.run_until_complete(begin(*["gate"] * 40))
    other.close()
print(threads() == 1 + most)
os.write(gate, b"x" * most)
while threads() > 1:
    os.sched_yield()
#: True
""",
    "threads that hung work for later loops": """
most = min(32, os.cpu_count() + 4)
run(begin(*["gate"] * most))
loop.close()
other = new_loop()
async def main():
    tasks = await begin(*["localhost"] * 40)
    os.write(gate, b"x" * most)
    print(set(await asyncio.gather(*tasks)), threads() <= 1 + most)
other.run_until_complete(main())
other.close()
while threads() > 1:
    os.sched_yield()
#: {80} True
""",
    "loops in several threads look names up": """
def work():
    other = new_loop()
    for _ in range(50):
        other.run_until_complete(ask())
    other.close()
workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
loop.close()
while threads() > 1:  # A joined thread of Python's may need a moment to end.
    os.sched_yield()
print(threads())
#: 1
""",
}


@pytest.fixture(scope="module")
def slow_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that comes before the C library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.c").write_text(SLOW_LIBRARY, encoding="utf-8")
    command = [compiler, "-shared", "-fPIC", "-o", "slow.so", "slow.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "slow.so"


# Without the GIL, a loop may be made while another thread closes the last one. The threads of that one leave
# late here: they have been woken, and do not run yet.
HARNESS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
static volatile int are_held;
static int late_wait(pthread_cond_t *changed, pthread_mutex_t *lock) {
    int code = pthread_cond_wait(changed, lock);
    while (are_held) {
        pthread_mutex_unlock(lock);
        sched_yield();
        pthread_mutex_lock(lock);
    }
    return code;
}
#define pthread_cond_wait late_wait
#include "whorl/aio/connections/name_lookup.h"
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

static int is_answered(whorl_name_channel *channel) {
    struct pollfd counter = {channel->fd, POLLIN, 0};
    whorl_name_lookup *lookup;
    int code = whorl_name_ask(channel, 1, "127.0.0.1", 9, "80", 2, 0, 1, 0, 0, 4);
    if (code != 0 || poll(&counter, 1, 10000) != 1)
        return 0;
    lookup = whorl_name_take(channel);
    whorl_name_free(lookup);
    return 1;
}

static void await_count(Py_ssize_t *count, Py_ssize_t value) {
    Py_ssize_t seen = value + 1;
    while (seen != value) {
        sched_yield();
        pthread_mutex_lock(&whorl_names.lock);
        seen = *count;
        pthread_mutex_unlock(&whorl_names.lock);
    }
}

static void *close_channel(void *channel) {
    whorl_name_close(channel);
    return NULL;
}

int main(void) {
    whorl_name_channel *first = whorl_name_open(eventfd(0, 0)), *second;
    pthread_t closer;
    int was_answered = is_answered(first);
    await_count(&whorl_names.waiting, 1);
    are_held = 1;
    pthread_create(&closer, NULL, close_channel, first);
    await_count(&whorl_names.channels, 0);
    second = whorl_name_open(eventfd(0, 0));
    printf("%d %d", was_answered, is_answered(second));
    are_held = 0;
    pthread_join(closer, NULL);
    whorl_name_withdraw(second, 0);
    whorl_name_close(second);
    printf(" %d\n", (int)whorl_names.running);
    return 0;
}
"""


@compiled_only
@pytest.mark.slow
def test_a_look_up_that_begins_while_the_last_loop_is_closed_is_answered(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "harness.c").write_text(HARNESS, encoding="utf-8")
    folders = [f"-I{SOURCES}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([compiler, "-pthread", "-o", "harness", *folders, "harness.c"], cwd=tmp_path, check=True)
    answer = subprocess.run([tmp_path / "harness"], capture_output=True, text=True, timeout=60)
    assert answer.stdout == "1 1 0\n"


@compiled_only
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_with_look_ups_under_way(program: str, slow_library: Path) -> None:
    preload = ("/usr/bin/env", f"LD_PRELOAD={slow_library}")
    expected = [line[3:] for line in program.splitlines() if line.startswith("#: ")]
    answer = run_program(BEGINNING + program, before=preload)
    assert answer.stdout.splitlines() == expected, answer.stderr
    assert answer.returncode == 0
