"""Connections are accepted where the system lacks a call that does it in one step."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# The number of accept4, by machine.
ACCEPT4 = {"x86_64": 288, "aarch64": 242}

# A filter in the kernel answers accept4 with ENOSYS in this process.
PROGRAM = """
import asyncio, ctypes, errno, os, struct, sys
import whorl

def load(): return struct.pack("HBBI", 0x20, 0, 0, 0)
def skip_unless(number): return struct.pack("HBBI", 0x15, 0, 1, number)
def answer(action): return struct.pack("HBBI", 0x06, 0, 0, action)

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

steps = [load(), skip_unless(int(sys.argv[1])), answer(0x00050000 | errno.ENOSYS), answer(0x7fff0000)]
memory = ctypes.create_string_buffer(b"".join(steps))
program = Program(len(steps), ctypes.cast(memory, ctypes.c_void_p))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit("no filter")

async def serve(reader, writer):
    fd = writer.get_extra_info("socket").fileno()
    writer.write(f"{os.get_blocking(fd)} {os.get_inheritable(fd)}".encode())
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print((await reader.read()).decode())
    writer.close()
    server.close()

whorl.run(main())
"""


def test_a_connection_is_accepted_without_accept4() -> None:
    number = ACCEPT4.get(platform.machine())
    if number is None:
        pytest.skip("the number of accept4 is not known here")
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number)], capture_output=True, text=True, timeout=20
    )
    if answer.stderr == "no filter\n":
        pytest.skip("the system takes no filter of system calls")
    assert answer.stdout + answer.stderr == "False False\n"
