"""The datagram engine; libuv's `UDP` on it.

`UDP` and asyncio's endpoints share the engine. Compiled, as each datagram passes through.
"""
