"""The stream engine; libuv's `TCP`, `Pipe` and `TTY` on it.

These and asyncio's transports share the engine. The room is compiled, since each packet passes through it.
"""
