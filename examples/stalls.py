"""The kinds of stalls of an event loop, and the report of the inspector on each."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time

import whorl


def sleep():
    """Sleep, as a library does that was not made for asyncio."""
    time.sleep(0.3)


def compute():
    """Keep the processor busy with Python's code."""
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass


def wait_for_writer():
    """Open a FIFO, which blocks until another program opens it for writing."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fifo")
        os.mkfifo(path)
        writer = threading.Timer(0.3, lambda: open(path, "wb").close())
        writer.start()
        open(path, "rb").close()
        writer.join()


def collect():
    """Let Python's garbage collector look at many objects."""
    gc.collect()


def hold_lock():
    """Call a function in C that keeps the interpreter's lock: no other thread of Python's runs."""
    sum(range(30_000_000))


async def handle(call):
    call()


async def be_starved(inspected):
    """Run short callbacks with no priority, beside programs that keep all processors busy."""
    processors = sorted(os.sched_getaffinity(0))
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in processors * 2]
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        end = time.monotonic() + 10
        while not inspected.starved() and time.monotonic() < end:
            time.thread_time()
            for _ in range(20_000):
                pass
            await asyncio.sleep(0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


async def main():
    inspected = whorl.inspector.start(threshold=0.05)
    heap = [[number] for number in range(3_000_000)]
    gc.freeze()  # The collections of the other calls need not look at these.
    for call in (sleep, compute, wait_for_writer, hold_lock, collect):
        if call is collect:
            gc.unfreeze()
        await asyncio.create_task(handle(call), name=call.__name__)
        await asyncio.sleep(1.2)  # The log has one line in a second.
    del heap
    await asyncio.sleep(0.2)
    stalls = len(inspected.stalls())
    await be_starved(inspected)
    await asyncio.sleep(0.2)
    print(f"A loaded machine: {inspected.starved()} callbacks waited for a processor.")
    print(f"They count as starved. New stalls: {len(inspected.stalls()) - stalls}.")
    inspected.stop()


if __name__ == "__main__":
    logging.basicConfig(format="\n%(message)s", stream=sys.stdout)
    whorl.run(main())
