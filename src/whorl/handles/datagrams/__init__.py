"""The datagram engine; libuv's `UDP` on it.

`UDP` and asyncio's endpoints share the engine. The room is compiled, since each datagram passes through it.
"""
