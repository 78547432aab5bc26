"""Calls of the kernel while allocators of memory fail: in a process of its own, which may crash.

    python -m tests.core.kernel.refused_calls

Each call fails with an error number. Without memory it may only raise MemoryError instead.
"""

from __future__ import annotations

import _testcapi
import faulthandler
import gc
import os
import socket
from typing import Any

from whorl.core import Kernel

#: Each call is made this many times, and is refused memory from one allocation more on.
ALLOCATIONS = 40
#: How many allocations fail. Without an end, a `finally` of CPython's may try for ever to get memory.
WIDTHS = (1, 30)

CLOSED = socket.socket()
CLOSED.close()
NO_FILE = 10**6
NOWHERE = "/nowhere/at/all"
ADDRESS = ("127.0.0.1", 9)

FAILING: dict[str, tuple[Any, ...]] = {
    "accept": (CLOSED,),
    "adopt_socket": (NO_FILE,),
    "bind": (CLOSED, ADDRESS),
    "change_mode": (NOWHERE, 0o600),
    "connect": (CLOSED, ADDRESS),
    "duplicate": (NO_FILE,),
    "file_flags": (NO_FILE,),
    "file_mode": (NO_FILE,),
    "file_size": (NO_FILE,),
    "get_option": (CLOSED, socket.SOL_SOCKET, socket.SO_ERROR),
    "interface_index": ("nowhere0",),
    "listen": (CLOSED, 1),
    "open_file": (NOWHERE, os.O_RDONLY, 0),
    "open_socket": (-5, socket.SOCK_STREAM, 0),
    "path_status": (NOWHERE,),
    "peer_name": (CLOSED,),
    "pidfd_open": (-1,),
    "receive_descriptors": (CLOSED, 1),
    "receive_error": (CLOSED,),
    "recvfrom": (CLOSED, 1),
    "send_descriptors": (CLOSED, b"x", []),
    "sendto": (CLOSED, b"", ADDRESS),
    "set_blocking": (NO_FILE, True),
    "set_file_position": (NO_FILE, 0),
    "set_option": (CLOSED, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "shutdown": (CLOSED, socket.SHUT_WR),
    "socket_error": (CLOSED,),
    "socket_kind": (NO_FILE,),
    "socket_name": (CLOSED,),
    "status": (NOWHERE, True),
    "terminal_size": (NO_FILE,),
    "unlink": (NOWHERE,),
}


def main() -> None:
    faulthandler.enable()
    kernel = Kernel()
    for name, arguments in FAILING.items():
        method = getattr(kernel, name)
        answer = method(*arguments)
        assert isinstance(answer, int)
        assert answer != 0
        for width in WIDTHS:
            print(name, width, flush=True)
            gc.collect()  # The errors of earlier calls change which allocations there are.
            for first in range(ALLOCATIONS):
                _testcapi.set_nomemory(first, first + width)
                try:
                    found = method(*arguments)
                except MemoryError:
                    found = answer
                except TypeError:
                    if name != "send_descriptors":  # sendmsg of 3.15 may take missing memory for that.
                        raise
                    found = answer
                finally:
                    _testcapi.remove_mem_hooks()
                assert found == answer, (name, first, found)
    print("done", flush=True)


if __name__ == "__main__":
    main()
