"""Handles: things with a descriptor, a timer or a thread, and libuv's vocabulary for them."""

from __future__ import annotations

from whorl.handles import fs
from whorl.handles.async_ import Async
from whorl.handles.dns import getaddrinfo, getnameinfo
from whorl.handles.fs_event import FsEvent
from whorl.handles.fs_poll import FsPoll
from whorl.handles.fs_request import FsRequest
from whorl.handles.kinds import HandleKind, guess_handle
from whorl.handles.loop_watchers import Check, Idle, Prepare
from whorl.handles.pipe import Pipe
from whorl.handles.process import Process, Stdio, StdioKind, kill
from whorl.handles.random import Random
from whorl.handles.requests import Connect, Shutdown, Write
from whorl.handles.signal import Signal
from whorl.handles.stream_handle import StreamHandle
from whorl.handles.tcp import TCP
from whorl.handles.threadpool import ThreadPool, Work, thread_pool
from whorl.handles.timer import Timer
from whorl.handles.tty import TTY, TTYMode, reset_mode
from whorl.handles.udp import UDP, UdpSend
from whorl.handles.watcher import Poll

__all__ = [
    "Async",
    "Check",
    "Connect",
    "FsEvent",
    "FsPoll",
    "FsRequest",
    "HandleKind",
    "Idle",
    "Pipe",
    "Poll",
    "Prepare",
    "Process",
    "Random",
    "Shutdown",
    "Signal",
    "Stdio",
    "StdioKind",
    "StreamHandle",
    "TCP",
    "TTY",
    "TTYMode",
    "ThreadPool",
    "Timer",
    "UDP",
    "UdpSend",
    "Work",
    "Write",
    "fs",
    "getaddrinfo",
    "getnameinfo",
    "guess_handle",
    "kill",
    "reset_mode",
    "thread_pool",
]
