"""Parts of asyncio, and of modules around it, as they were when Whorl was imported.

Most of Whorl's modules for connections come at their first use. They take these from here, so they do not
depend on what a program has replaced in the meantime.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import base_subprocess, futures, log, staggered, streams, trsock
from concurrent.futures import _base
from logging import Logger
from typing import Any

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

BaseProtocol = asyncio.BaseProtocol
BufferedProtocol = asyncio.BufferedProtocol
DatagramTransport = asyncio.DatagramTransport
Process = asyncio.subprocess.Process
Protocol = asyncio.Protocol
ReadTransport = asyncio.ReadTransport
Server = asyncio.Server
StreamReader = streams.StreamReader
StreamReaderProtocol = streams.StreamReaderProtocol
StreamWriter = streams.StreamWriter
SubprocessTransport = asyncio.SubprocessTransport
Transport = asyncio.Transport
TransportSocket = trsock.TransportSocket

logger: Logger = log.logger
warn: Any = warnings.warn

can_write_eof: Any = Transport.can_write_eof
get_extra_info: Any = Transport.get_extra_info
is_reading: Any = Transport.is_reading
pause_reading: Any = Transport.pause_reading
resume_reading: Any = Transport.resume_reading
write: Any = Transport.write
write_eof: Any = Transport.write_eof
writelines: Any = Transport.writelines
process_exited: Any = base_subprocess.BaseSubprocessTransport._process_exited

communicate: Any = vars(Process).get("communicate")
read_stream: Any = vars(Process).get("_read_stream")

staggered_race: Any = staggered.staggered_race

FutureOfThread = _base.Future
chain_future: Any = futures._chain_future  # type: ignore[attr-defined]
convert_future_exc: Any = futures._convert_future_exc  # type: ignore[attr-defined]
copy_future_state: Any = futures._copy_future_state  # type: ignore[attr-defined]

SSLObject: Any = None if ssl is None else ssl.SSLObject
METHODS_OF_SSL_OBJECTS: list[tuple[type, str, Any]] = [
    (SSLObject, name, getattr(SSLObject, name))
    for name in "cipher compression do_handshake getpeercert pending read unwrap write".split()
    if ssl is not None
]
