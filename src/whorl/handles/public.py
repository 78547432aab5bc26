"""The public names of `whorl.handles`."""

from __future__ import annotations

from whorl.handles import fs
from whorl.handles.datagrams.udp import UDP, UdpSend
from whorl.handles.fs.request import FsRequest
from whorl.handles.process.process import Process, Stdio, StdioKind, kill
from whorl.handles.requests import Connect, Shutdown, Write
from whorl.handles.streams.pipe import Pipe
from whorl.handles.streams.stream_handle import StreamHandle
from whorl.handles.streams.tcp import TCP
from whorl.handles.streams.tty import TTY, TTYMode, reset_mode
from whorl.handles.threads.dns import getaddrinfo, getnameinfo
from whorl.handles.threads.random import Random
from whorl.handles.threads.thread_pool import ThreadPool, Work, thread_pool
from whorl.handles.watchers.async_ import Async
from whorl.handles.watchers.fs_event import FsEvent
from whorl.handles.watchers.fs_poll import FsPoll
from whorl.handles.watchers.kinds import HandleKind, guess_handle
from whorl.handles.watchers.loop_watchers import Check, Idle, Prepare
from whorl.handles.watchers.poll import Poll
from whorl.handles.watchers.signal import Signal
from whorl.handles.watchers.timer import Timer

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
